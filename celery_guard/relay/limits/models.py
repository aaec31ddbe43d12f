"""The limits' tables, used where no Redis is configured."""

from __future__ import annotations

from django.db import models


class Limit(models.Model):
    """One row per dependency: its state as JSON; ``version`` counts the writes."""

    name = models.CharField(max_length=64, primary_key=True)
    state = models.TextField(default="{}")
    version = models.BigIntegerField(default=0)

    class Meta:
        app_label = "celery_guard"

    def __str__(self) -> str:
        return self.name


class LimitHold(models.Model):
    """Somebody's place in the line of a dependency, or a permit; times in Unix microseconds.

    ``at``: when the place comes, or when the permit was taken. The row counts until ``over``.
    Written only while the dependency's ``Limit`` row is locked.
    """

    PLACE, PERMIT = "place", "permit"

    id = models.BigAutoField(primary_key=True)
    name = models.CharField(max_length=64)
    kind = models.CharField(max_length=6)
    holder = models.CharField(max_length=128)
    at = models.BigIntegerField()
    over = models.BigIntegerField()

    class Meta:
        app_label = "celery_guard"
        constraints = [
            models.UniqueConstraint(
                fields=["name", "kind", "holder"], name="celery_guard_limithold_one"
            ),
        ]
        indexes = [
            models.Index(fields=["name", "over"], name="celery_guard_limithold_over"),
        ]

    def __str__(self) -> str:
        return f"{self.name} {self.kind} {self.holder}"
