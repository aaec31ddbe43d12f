"""Removes what has ended long ago, in small bounded steps that nobody waits for.

The payload (message, result, error, history) goes after its retention; the job's row stays
as the memory that its key was used, and goes much later. Ended rows are found by walking the
primary key, a range at a time: no index is kept up for this on the table that every job writes,
and the walk's place is remembered on the duty's row.
"""

from __future__ import annotations

import dataclasses
import time

from django.db import connections, transaction
from django.db.models import (
    BooleanField,
    DateTimeField,
    Exists,
    ExpressionWrapper,
    F,
    OuterRef,
    Q,
    QuerySet,
)

from celery_guard.conf import guard_settings
from celery_guard.enqueue.admission.gate import remove_idle
from celery_guard.enqueue.rollout import bounds, observing
from celery_guard.events import emit
from celery_guard.jobs.clock import DatabaseNow, in_seconds
from celery_guard.jobs.models import Attempt, Job
from celery_guard.jobs.ranges import next_range
from celery_guard.jobs.states import TERMINAL, State
from celery_guard.outbox.models import OutboxMessage
from celery_guard.relay.duties import duty
from celery_guard.relay.models import Duty

STEP = 500
"""Most rows changed in one transaction."""
RANGE = 20_000
"""Ids looked through in one statement."""
EVERY = 300.0
SUPERSEDED = 1800.0
"""Seconds that a superseded job is kept for its handle, and longer while its survivor has not ended."""
SPEND = 1.0
"""Seconds that one round of the duty may take: some million ids."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Purged:
    """How many payloads were emptied, and how many rows removed."""

    payloads: int = 0
    rows: int = 0

    def __add__(self, other: Purged) -> Purged:
        return Purged(payloads=self.payloads + other.payloads, rows=self.rows + other.rows)


@duty("purge", every=lambda: EVERY)
def purge_a_little(using: str) -> None:
    """Go on with the walk for a second; at the end of the table it starts over."""
    place = Duty.objects.using(using).filter(name="purge")
    cursor = place.values_list("cursor", flat=True).first() or 0
    remove_idle(using)
    bounds.forget_old(using)
    observing.forget_old(using)
    cursor, purged = walk(using, cursor, until=time.monotonic() + SPEND)
    place.update(cursor=cursor)
    if purged != Purged():
        emit("relay.purged", payloads=purged.payloads, rows=purged.rows)


def walk(using: str, cursor: int, *, until: float | None = None) -> tuple[int, Purged]:
    """Purge from job id ``cursor`` on; return where to go on (0 at the end) and what was done.

    :param until: when to stop, on :func:`time.monotonic`'s clock; None: at the end.
    """
    purged = Purged()
    while (bounds := next_range(using, cursor, RANGE)) is not None:
        first, last = bounds
        while (step := _step(using, first, last)) is not None:
            purged += step
        cursor = last
        if until is not None and time.monotonic() > until:
            return cursor, purged
    return 0, purged


def count(using: str) -> Purged:
    """What a full walk would do now, changing nothing."""
    jobs = Job.objects.using(using)
    rows = jobs.filter(_whole_rows()).count()
    return Purged(payloads=jobs.filter(_payloads()).exclude(_whole_rows()).count(), rows=rows)


def _payloads() -> Q:
    keep = guard_settings().retention
    done = Q(state=State.SUCCEEDED, finished_at__lt=in_seconds(-keep.succeeded))
    others = Q(state__in=_UNSUCCESSFUL, finished_at__lt=in_seconds(-keep.failed))
    return Q(message__isnull=False) & (done | others)


def _whole_rows() -> Q:
    # Without a key there is nothing to remember.
    old = Q(state__in=TERMINAL, finished_at__lt=in_seconds(-guard_settings().retention.keys))
    # Whoever is waited for is no superseded job, but an echo.
    over = Q(state=State.SUPERSEDED, finished_at__lt=in_seconds(-SUPERSEDED))
    # It steps in for its survivor if that is cancelled.
    needed = Exists(Job.objects.filter(pk=OuterRef("survivor_id"), finished_at=None))
    old |= over & ~Q(needed)
    return (old | (_payloads() & Q(key=None))) & ~_within_period()


def _within_period() -> Q:
    # Its end says when the next run of its key may begin: the ledger keeps a period as a time
    # before the job's creation.
    period = F("created_at") - F("max_due_at")
    since = ExpressionWrapper(DatabaseNow() - period, output_field=DateTimeField())
    return Q(max_due_at__isnull=False, max_due_at__lt=F("created_at"), finished_at__gt=since)


_UNSUCCESSFUL = [state for state in TERMINAL if state != State.SUCCEEDED]


def _step(using: str, first: int, last: int) -> Purged | None:
    jobs = Job.objects.using(using).filter(pk__gte=first, pk__lte=last)
    with transaction.atomic(using=using):
        rows = _lock(using, jobs)
        if not rows:
            return None
        whole = [pk for pk, _, goes in rows if goes]
        emptied = [pk for pk, _, goes in rows if not goes]
        messages = [message for _, message, _ in rows if message is not None]
        OutboxMessage.objects.using(using).filter(pk__in=messages).delete()
        Attempt.objects.using(using).filter(job__in=[*whole, *emptied]).delete()
        if whole:
            jobs.filter(pk__in=whole).delete()
        if emptied:
            jobs.filter(pk__in=emptied).update(message=None, result=None, error=None)
        return Purged(payloads=len(emptied), rows=len(whole))


def _lock(using: str, jobs: QuerySet[Job]) -> list[tuple[int, int | None, bool]]:
    skips = connections[using].features.has_select_for_update_skip_locked
    # One reading of the range for both kinds: most ranges hold nothing that may go.
    rows = (
        jobs.filter(_payloads() | _whole_rows())
        .annotate(whole=ExpressionWrapper(_whole_rows(), output_field=BooleanField()))
        .order_by("pk")
        .select_for_update(skip_locked=skips)
    )
    return list(rows.values_list("pk", "message_id", "whole")[:STEP])
