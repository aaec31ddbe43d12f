"""What the tests' tasks write; no row points to a job, since jobs are purged."""

from django.db import models


class Order(models.Model):
    """A customer's order: the business row that asks for jobs."""

    customer = models.CharField(max_length=100, default="")
    total = models.IntegerField(default=0)


class Invoice(models.Model):
    """An invoice of an order. Not unique, so that a second one would be seen and counted."""

    order_id = models.BigIntegerField(db_index=True)


class Payment(models.Model):
    """A charge that was confirmed, with the key the provider was given."""

    order_id = models.BigIntegerField(db_index=True)
    reference = models.CharField(max_length=200)


class Mark(models.Model):
    """A business write that says: this body was here."""

    name = models.CharField(max_length=200, db_index=True)
    value = models.TextField(default="")
