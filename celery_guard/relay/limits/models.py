"""The limits' tables: what was set at run time, and the limits themselves where there is no Redis."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.utils.translation import gettext_lazy as _

from celery_guard.enqueue.steering.terms import Terms, TermsManager


class LimitChange(Terms):
    """Other limits of one dependency, set while the site runs: they win over the settings.

    ``rate`` and ``burst`` are lists as people write them; what is empty stays as the settings say.
    Of several in force the newest counts.
    """

    id = models.BigAutoField(primary_key=True)
    dependency = models.CharField(max_length=64)
    rate = models.CharField(max_length=200, blank=True, default="")
    burst = models.CharField(max_length=100, blank=True, default="")
    concurrency = models.PositiveIntegerField(null=True, blank=True)

    objects = TermsManager()

    class Meta:
        app_label = "celery_guard"
        verbose_name = _("limit change")
        verbose_name_plural = _("limit changes")
        default_permissions = ("view",)
        permissions: ClassVar = [("change_limits", "Can change the limits of dependencies")]
        indexes: ClassVar = [models.Index(fields=["expires_at"], name="celery_guard_change_expiry")]

    def __str__(self) -> str:
        return f"{self.dependency}: {self.limits}"

    @property
    def limits(self) -> str:
        """What it says, in words."""
        named = [f"{n} {v}" for n in ("rate", "burst", "concurrency") if (v := getattr(self, n))]
        return "; ".join(named)


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
