"""The table of switches; ended ones stay as history."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.utils.translation import gettext_lazy as _

from celery_guard.enqueue.steering.terms import Terms, TermsManager


class Action(models.TextChoices):
    """What a switch does to the jobs it matches."""

    HOLD = "hold", _("hold: jobs wait in the database, none starts")
    REFUSE = "refuse", _("refuse: new requests are turned away, owed work goes on")
    DEMOTE = "demote", _("demote: new jobs go to the next lower lane, owed work stays")


class Switch(Terms):
    """One thing an operator turned: which jobs, what happens to them, why, who, until when.

    An empty ``lane``, ``task`` or ``tenant`` matches any. It ends by itself at ``expires_at``, or
    before that by ``ended_by`` at ``ended_at``; the row stays.
    """

    id = models.BigAutoField(primary_key=True)
    lane = models.CharField(max_length=64, blank=True, default="")
    task = models.CharField(max_length=255, blank=True, default="")
    tenant = models.CharField(max_length=255, blank=True, default="")
    action = models.CharField(max_length=8, choices=Action.choices, default=Action.HOLD)

    objects = TermsManager()

    class Meta:
        app_label = "celery_guard"
        verbose_name = _("switch")
        verbose_name_plural = _("switches")
        default_permissions = ("view",)
        permissions: ClassVar = [("steer_jobs", "Can pause, refuse and resume jobs")]
        indexes: ClassVar = [models.Index(fields=["expires_at"], name="celery_guard_switch_expiry")]

    def __str__(self) -> str:
        return f"switch {self.pk}: {self.action} {self.scope}"

    @property
    def scope(self) -> str:
        """Which jobs it matches, in words."""
        named = [f"{n} {v}" for n in ("lane", "task", "tenant") if (v := getattr(self, n))]
        return ", ".join(named) or "everything"
