"""The relay's tables: who leads a lane, and who serves it."""

from __future__ import annotations

from django.db import models


class LaneLead(models.Model):
    """One row per lane: the relay that leads it, and how far its messages were seen to arrive.

    Every change of leader raises ``term``; all of a leader's writes compare owner and term.
    ``probe_sent_at`` is the newest sending time of a job seen started at ``probe_at``; once
    that is older than the grace it becomes ``proven_sent_at``: whatever was sent before it and
    still waits is taken for lost. ``told_until`` is the end up to which every job that somebody
    waits for has been told of, or counted as untold. ``failing_since`` is when the leader found the
    broker away; NULL while it takes messages, or nobody knows.
    """

    lane = models.CharField(max_length=64, primary_key=True)
    owner = models.UUIDField(null=True)
    term = models.BigIntegerField(default=0)
    lead_until = models.DateTimeField(null=True)
    probe_sent_at = models.DateTimeField(null=True)
    probe_at = models.DateTimeField(null=True)
    proven_sent_at = models.DateTimeField(null=True)
    idle_since = models.DateTimeField(null=True)
    told_until = models.DateTimeField(null=True)
    failing_since = models.DateTimeField(null=True)

    class Meta:
        app_label = "celery_guard"

    def __str__(self) -> str:
        return self.lane


class WorkerPresence(models.Model):
    """One row per living Celery worker, renewed by the relay it hosts.

    ``queues`` is a JSON list; ``slots`` the size of its pool; ``version`` that of the guard it runs,
    empty where that does not say so.
    """

    owner = models.UUIDField(primary_key=True)
    name = models.CharField(max_length=255)
    queues = models.JSONField(default=list)
    slots = models.IntegerField(default=1)
    version = models.CharField(max_length=32, default="", db_default="")
    seen_at = models.DateTimeField()

    class Meta:
        app_label = "celery_guard"

    def __str__(self) -> str:
        return self.name


class Duty(models.Model):
    """A leased row per upkeep duty (sweep, snapshot, purge): whoever takes it does it once.

    ``begun_at`` paces it; ``done_at`` is the last time it went well. ``cursor`` is the duty's
    own, for work that walks through a table in steps.
    """

    name = models.CharField(max_length=64, primary_key=True)
    owner = models.UUIDField(null=True)
    begun_at = models.DateTimeField(null=True)
    busy_until = models.DateTimeField(null=True)
    done_at = models.DateTimeField(null=True)
    cursor = models.BigIntegerField(default=0)

    class Meta:
        app_label = "celery_guard"

    def __str__(self) -> str:
        return self.name
