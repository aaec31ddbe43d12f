"""The ledger's tables: ``Job`` holds everything that changes, ``Attempt`` what went wrong.

One compound index serves everyone who works through a list:

========== ======================= =================
waiting    ``sent_at`` is NULL     ``due_at`` is set
sent       ``sent_at`` is set      ``due_at`` is set
running    ``sent_at`` is set      ``due_at`` is set
ended      ``sent_at`` is NULL     ``due_at`` is NULL
========== ======================= =================

so a release, the count of what is in flight, and both sweeps are short index ranges that
never meet an ended row, on every database. A claim and a heartbeat touch no indexed column.
"""

from __future__ import annotations

import uuid
from typing import ClassVar

from django.db import models
from django.db.models import BooleanField, ExpressionWrapper, Q
from django.db.models.lookups import Exact

from celery_guard.conf.modes import Mode
from celery_guard.jobs.states import DEAD_LETTERS, TERMINAL, State


class JobQuerySet(models.QuerySet["Job"]):
    """Named groups of jobs."""

    def unsent(self) -> JobQuerySet:
        """Waiting for a relay, whether due yet or not."""
        return self.filter(state=State.WAITING, sent_at=None, due_at__isnull=False)

    def sent(self) -> JobQuerySet:
        """In the broker as far as the ledger knows: sent, not yet claimed."""
        return self.filter(state=State.WAITING, sent_at__isnull=False)

    def running(self) -> JobQuerySet:
        """Held by an attempt."""
        return self.filter(state=State.RUNNING)

    def ended(self) -> JobQuerySet:
        """In a state that nothing but a replay leaves."""
        return self.filter(state__in=TERMINAL)

    def dead_letters(self) -> JobQuerySet:
        """Ended without success and kept for replay: failed and dead."""
        return self.filter(state__in=DEAD_LETTERS)


def _truth(condition: Q) -> ExpressionWrapper[Q]:
    return ExpressionWrapper(condition, output_field=BooleanField())


class Job(models.Model):
    """One operation.

    ``key`` names it (unique per task, NULL for none); a ``plain`` job only carries the message
    of an unguarded task and goes when it is sent; ``message`` is the outbox row that
    carries it now. ``fence`` and ``starts`` only ever grow; ``failures`` is the only budget that is
    used up. ``sends`` less ``starts`` is how often it was sent since a claim last answered; a
    replay brings the two level. ``answers`` is how often the message of the ended job was sent
    once more so that a worker tells whoever waits (``awaited``); once ``answered_at`` is set it is
    negative.

    ``coalesce_key`` groups the requests of which only the latest state matters; ``running_key``
    (a digest of task and coalesce key) is the slot of the one that runs, and ``max_due_at``
    bounds how long a debounced one is put off; for one that runs at most once a period it lies
    that period *before* ``created_at``. ``done`` of ``total`` is the progress that the body last told.

    ``mode`` is the task's mode when it was asked for: what is done with the job goes by that,
    whatever the mode is now.
    """

    id = models.BigAutoField(primary_key=True)
    public_id = models.UUIDField(unique=True, default=uuid.uuid4, editable=False)
    task = models.CharField(max_length=255)
    key = models.CharField(max_length=255, null=True, blank=True)
    fingerprint = models.CharField(max_length=32, blank=True, default="")
    lane = models.CharField(max_length=64)
    tenant = models.CharField(max_length=255, blank=True, default="")
    dependency = models.CharField(max_length=64, blank=True, default="", db_default="")
    coalesce_key = models.CharField(max_length=255, null=True, blank=True)
    running_key = models.CharField(max_length=64, null=True, blank=True)
    state = models.CharField(max_length=12, choices=State.choices, default=State.WAITING)
    reason = models.CharField(max_length=16, blank=True, default="")
    plain = models.BooleanField(default=False)
    mode = models.CharField(
        max_length=8,
        choices=[(mode.value, mode.value) for mode in Mode],
        default=Mode.ON.value,
        db_default=Mode.ON.value,
    )
    awaited = models.BooleanField(default=False)
    created_at = models.DateTimeField()
    first_due_at = models.DateTimeField()
    due_at = models.DateTimeField(null=True, blank=True)
    max_due_at = models.DateTimeField(null=True, blank=True)
    expires_at = models.DateTimeField(null=True, blank=True)
    sent_at = models.DateTimeField(null=True, blank=True)
    started_at = models.DateTimeField(null=True, blank=True)
    lease_until = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)
    answered_at = models.DateTimeField(null=True, blank=True)
    cancel_asked_at = models.DateTimeField(null=True, blank=True)
    owner = models.UUIDField(null=True, blank=True)
    fence = models.IntegerField(default=0)
    starts = models.IntegerField(default=0)
    sends = models.IntegerField(default=0)
    answers = models.SmallIntegerField(default=0, db_default=0)
    failures = models.IntegerField(default=0)
    lost = models.IntegerField(default=0)
    done = models.IntegerField(null=True, blank=True)
    total = models.IntegerField(null=True, blank=True)
    # No database constraint: the pair is written by one statement and purged by one, and a
    # constraint would cost every enqueue a lock on the other table.
    message = models.ForeignKey(
        "celery_guard.OutboxMessage",
        on_delete=models.DO_NOTHING,
        db_constraint=False,
        db_index=False,
        null=True,
        related_name="+",
    )
    survivor = models.ForeignKey(
        "self",
        on_delete=models.DO_NOTHING,
        db_constraint=False,
        db_index=False,
        null=True,
        blank=True,
        related_name="+",
    )
    result = models.TextField(null=True, blank=True)
    error = models.TextField(null=True, blank=True)

    objects: ClassVar[models.Manager[Job]] = JobQuerySet.as_manager()

    class Meta:
        app_label = "celery_guard"
        indexes = [
            models.Index(fields=["lane", "sent_at", "due_at"], name="celery_guard_job_line"),
            # ``finished_at`` is set and cleared only where ``due_at`` is too, so it keeps no
            # update more out of HOT. MariaDB ignores the condition, and has the whole index.
            models.Index(
                fields=["coalesce_key", "task", "finished_at"],
                name="celery_guard_job_coalesce",
                condition=Q(coalesce_key__isnull=False),
            ),
            # The sweep of untold ends. It must not name ``answered_at``: setting that, once for
            # every job somebody waits for, would no longer be HOT and write to every index.
            models.Index(
                fields=["lane", "awaited", "answers", "finished_at"],
                name="celery_guard_job_owed",
                condition=Q(awaited=True, finished_at__isnull=False),
            ),
        ]
        constraints = [
            models.UniqueConstraint(fields=["task", "key"], name="celery_guard_job_key"),
            # NULL but for the one running job of a coalesce key.
            models.UniqueConstraint(fields=["running_key"], name="celery_guard_job_slot"),
            # A job that has a due time and no owner waits, and no other does. Every statement that
            # writes a job reads a check's text anew: one of all states cost as much as the row.
            models.CheckConstraint(
                name="celery_guard_job_waits",
                condition=Exact(
                    _truth(Q(state=State.WAITING)),
                    _truth(Q(due_at__isnull=False, owner__isnull=True)),
                ),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.task} {self.key or self.public_id}"


class Attempt(models.Model):
    """One execution that ended in something else than plain success; append-only."""

    id = models.BigAutoField(primary_key=True)
    job = models.ForeignKey(
        Job, on_delete=models.CASCADE, db_constraint=False, related_name="attempts"
    )
    number = models.IntegerField()
    outcome = models.CharField(max_length=16)
    reason = models.CharField(max_length=16)
    error = models.TextField(blank=True, default="")
    fingerprint = models.CharField(max_length=32, blank=True, default="")
    worker = models.CharField(max_length=255, blank=True, default="")
    started_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField()

    class Meta:
        app_label = "celery_guard"

    def __str__(self) -> str:
        return f"attempt {self.number}: {self.outcome} ({self.reason})"
