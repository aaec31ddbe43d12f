"""The table of effects."""

from __future__ import annotations

from typing import ClassVar

from django.db import models

from celery_guard.jobs.models import Job
from celery_guard.settle.naming import ITEM_LENGTH, NAME_LENGTH
from celery_guard.settle.states import EffectState, Recovery


class Effect(models.Model):
    """The intent, and the fate, of one external side effect.

    One row per job, name and item. ``fence`` is that of the attempt which sent it last;
    ``key_until`` the end of the provider's memory of ``provider_key``; ``look_at`` when it is
    to be looked at again; ``answer`` kombu JSON. ``reopened_at`` is when the provider took a
    confirmation back, which counts once.
    """

    id = models.BigAutoField(primary_key=True)
    job = models.ForeignKey(
        Job, on_delete=models.CASCADE, db_constraint=False, related_name="effects"
    )
    name = models.CharField(max_length=NAME_LENGTH)
    item = models.CharField(max_length=ITEM_LENGTH, blank=True, default="")
    state = models.CharField(
        max_length=12, choices=EffectState.choices, default=EffectState.PREPARED
    )
    recovery = models.CharField(max_length=12, choices=Recovery.choices)
    provider = models.CharField(max_length=100, blank=True, default="")
    provider_key = models.CharField(max_length=64)
    request = models.CharField(max_length=32, blank=True, default="")
    version = models.IntegerField(default=0)
    fence = models.IntegerField(null=True)
    looks = models.IntegerField(default=0)
    created_at = models.DateTimeField()
    sent_at = models.DateTimeField(null=True)
    key_until = models.DateTimeField(null=True)
    look_at = models.DateTimeField(null=True)
    settled_at = models.DateTimeField(null=True)
    settled_by = models.CharField(max_length=255, blank=True, default="")
    note = models.TextField(blank=True, default="")
    reopened_at = models.DateTimeField(null=True)
    reopened_by = models.CharField(max_length=255, blank=True, default="", db_default="")
    # Null for none: MariaDB gives a text no default.
    reopened_for = models.TextField(null=True, blank=True)
    answer = models.TextField(null=True)

    objects: ClassVar[models.Manager[Effect]] = models.Manager()

    class Meta:
        app_label = "celery_guard"
        constraints = [
            models.UniqueConstraint(
                fields=["job", "name", "item"], name="celery_guard_effect_once"
            ),
        ]
        indexes = [
            models.Index(fields=["state", "look_at"], name="celery_guard_effect_look"),
            # A provider that calls back knows nothing but the key it was given.
            models.Index(fields=["provider_key"], name="celery_guard_effect_key"),
        ]

    def __str__(self) -> str:
        return f"{self.name} {self.item}".strip()
