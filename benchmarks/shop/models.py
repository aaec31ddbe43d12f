"""The business tables, and the tables of the hand-written minimal versions."""

from django.db import models


class Order(models.Model):
    """The business row of each request-like transaction."""

    customer = models.BigIntegerField()
    total = models.DecimalField(max_digits=10, decimal_places=2)
    created_at = models.DateTimeField(auto_now_add=True)


class Effect(models.Model):
    """The business row a job writes."""

    order = models.BigIntegerField()
    total = models.DecimalField(max_digits=10, decimal_places=2)
    created_at = models.DateTimeField(auto_now_add=True)


class Claim(models.Model):
    """A hand-written idempotency record: one row a logical job."""

    RUNNING, DONE = 0, 1

    key = models.CharField(primary_key=True, max_length=64)
    state = models.SmallIntegerField(default=RUNNING)
    claimed_at = models.DateTimeField(auto_now_add=True)
    done_at = models.DateTimeField(null=True)


class LimitOutbox(models.Model):
    """The smallest outbox row; only the `limit_*` contenders write it."""

    task_id = models.UUIDField()
    task = models.TextField()
    payload = models.TextField()

    class Meta:
        db_table = "limit_outbox"
