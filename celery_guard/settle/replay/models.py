"""The tables of bulk replays: what was asked for, and what became of each job."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models import TextChoices

from celery_guard.jobs.models import Job


class ReplayState(TextChoices):
    """Where a bulk replay stands."""

    CHOOSING = "choosing"
    RUNNING = "running"
    DONE = "done"
    CANCELLED = "cancelled"


ACTIVE = (ReplayState.CHOOSING, ReplayState.RUNNING)


class ItemState(TextChoices):
    """What became of one job of a replay."""

    PENDING = "pending"
    REPLAYED = "replayed"
    SKIPPED = "skipped"


class Skipped(TextChoices):
    """Why a job of a replay was left alone."""

    MOVED_ON = "moved_on"
    PURGED = "purged"
    EFFECT = "effect"
    SUPERSEDED = "superseded"
    TOO_OFTEN = "too_often"


class Replay(models.Model):
    """One bulk replay: whose dead letters, how fast, who wants it and why.

    ``task``, ``mark`` (the error's fingerprint, else the reason), ``lane`` and ``tenant`` say which;
    empty matches any. ``pace`` is in jobs a second. Its members are those that had ended at
    ``created_at``: ``cursor`` is how far the ledger has been looked through for them, ``up_to``
    where that ends. ``next_at`` is when it goes on.
    """

    id = models.BigAutoField(primary_key=True)
    state = models.CharField(
        max_length=12, choices=ReplayState.choices, default=ReplayState.CHOOSING
    )
    task = models.CharField(max_length=255, blank=True, default="")
    mark = models.CharField(max_length=32, blank=True, default="")
    lane = models.CharField(max_length=64, blank=True, default="")
    tenant = models.CharField(max_length=255, blank=True, default="")
    pace = models.FloatField()
    reason = models.CharField(max_length=500)
    author = models.CharField(max_length=150)
    created_at = models.DateTimeField()
    next_at = models.DateTimeField()
    cursor = models.BigIntegerField(default=0)
    up_to = models.BigIntegerField()
    chosen = models.IntegerField(default=0)
    replayed = models.IntegerField(default=0)
    skipped = models.IntegerField(default=0)
    finished_at = models.DateTimeField(null=True, blank=True)
    ended_by = models.CharField(max_length=150, blank=True, default="")

    objects: ClassVar[models.Manager[Replay]] = models.Manager()

    class Meta:
        app_label = "celery_guard"
        verbose_name = "replay"
        verbose_name_plural = "replays"
        default_permissions = ("view",)
        indexes = [models.Index(fields=["state", "next_at"], name="celery_guard_replay_next")]

    def __str__(self) -> str:
        return f"{self.id}: {self.scope}"

    @property
    def scope(self) -> str:
        """Which dead letters it is about, in words."""
        words = {"task": self.task, "group": self.mark, "lane": self.lane, "tenant": self.tenant}
        return ", ".join(f"{name} {word}" for name, word in words.items() if word)

    @property
    def left(self) -> int:
        """Chosen jobs about which nothing is decided yet."""
        return self.chosen - self.replayed - self.skipped


class ReplayItem(models.Model):
    """One job of one bulk replay, and what became of it."""

    id = models.BigAutoField(primary_key=True)
    replay = models.ForeignKey(
        Replay, on_delete=models.CASCADE, db_constraint=False, db_index=False, related_name="items"
    )
    job = models.ForeignKey(Job, on_delete=models.DO_NOTHING, db_constraint=False, related_name="+")
    state = models.CharField(max_length=12, choices=ItemState.choices, default=ItemState.PENDING)
    reason = models.CharField(max_length=16, choices=Skipped.choices, blank=True, default="")
    decided_at = models.DateTimeField(null=True)

    objects: ClassVar[models.Manager[ReplayItem]] = models.Manager()

    class Meta:
        app_label = "celery_guard"
        default_permissions = ()
        constraints = [
            models.UniqueConstraint(fields=["replay", "job"], name="celery_guard_replay_once"),
        ]
        indexes = [models.Index(fields=["replay", "state"], name="celery_guard_replay_items")]

    def __str__(self) -> str:
        return f"{self.job_id}: {self.state}"
