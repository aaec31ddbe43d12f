"""Ends that nobody has been told of: the message of an ended job goes out once more.

A worker that gets it finds the job ended and answers from the row. Whoever waits is told by the
process that ended the job, in the ordinary course; but that process may have died in between, or
have had no way to tell (a rescue, a cancel, an expiry).

Each end that somebody waits for is looked at a grace after it: the lane's row says how far the
looks have come (``told_until``). What turns out untold is counted (``answers``), and from then on
found by that count. So no sweep reads what an earlier one has read, and being told costs an
ordinary job no index entry. A second look, much later, is for the ends whose transaction was
still open at the first.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Collection, Iterable, Iterator
from datetime import datetime, timedelta

from django.db import connections, transaction
from django.db.models import F, Max, QuerySet

from celery_guard.jobs.clock import DatabaseNow
from celery_guard.jobs.models import Job
from celery_guard.jobs.named import NamedJob
from celery_guard.jobs.release_portably import leads
from celery_guard.jobs.sending import Lead, Sending

MOST_ANSWERS = 10
"""Times that an ended job's message is sent once more, whoever sends it.

The n-th time comes 2ⁿ⁻¹ graces after the end: with the default grace the last one after four hours.
"""
TOO_LATE = timedelta(days=1)
"""Time after its end from which a job is no longer told of: Celery keeps results, and the
counters of chords, for a day."""
BATCH = 100
"""Most jobs of one lane that are told of in one sweep."""
LOOK = 5_000
"""About the most ends of one lane that one sweep looks at for the first time."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Untold:
    """``again`` has to reach the broker; of ``given_up`` (ids) there is no message to send."""

    again: tuple[Sending, ...] = ()
    given_up: tuple[int, ...] = ()


def untold(using: str, lead: Lead, grace: float) -> Untold:
    """Count one more try for the ended jobs of a lane whose end is untold for too long.

    Nothing happens once the lead is lost. Locked rows are passed over.

    :param grace: seconds from the end to the first try; doubled for each one after it.
    """
    with transaction.atomic(using=using):
        row = (
            leads(using, lead).annotate(now=DatabaseNow()).values_list("now", "told_until").first()
        )
        if row is None:
            return Untold()
        now, told_until = row
        since = max(told_until or now - TOO_LATE, now - TOO_LATE)
        ends, until = _new(using, lead.lane, since, now - timedelta(seconds=grace))
        held = _lock(using, [*ends, *_tried(using, lead.lane, now, grace)])
        # Somebody has them locked: the next sweep looks again.
        if missed := [end for pk, end in ends.items() if pk not in held]:
            until = _before(min(missed), since)
        found = _count(using, held) if held else Untold()
    # On its own: a relay that is frozen in the transaction must not hold the row that another
    # one needs to take the lane. What has been counted is found by its count.
    # Where nothing was seen, nothing is written: most lanes hold no such job, at any sweep.
    if until != since:
        leads(using, lead).update(told_until=until)
    return found


def overlooked(using: str, lane: str, since: datetime, last: datetime) -> int:
    """Count a try for the untold ends of a lane after ``since`` that no look has met; how many.

    The transaction of such an end was still open when the others of its time were looked at. By
    its count it is found from now on.
    """
    counted = 0
    while True:
        ends, until = _new(using, lane, since, last)
        with transaction.atomic(using=using):
            held = Job.objects.using(using).filter(pk__in=_lock(using, list(ends)), answers=0)
            now = held.update(answers=1)
        if not now and until == since:
            return counted
        counted, since = counted + now, until


def _new(
    using: str, lane: str, since: datetime, last: datetime
) -> tuple[dict[int, datetime], datetime]:
    """The untold of the ends after ``since``, and up to which time they are all there."""
    ends = Job.objects.using(using).filter(lane=lane, awaited=True, answers=0)
    ends = ends.filter(finished_at__gt=since, finished_at__lte=last).order_by("finished_at")
    until: datetime | None = ends[:LOOK].aggregate(until=Max("finished_at"))["until"]
    if until is None:
        return {}, since
    rows = ends.filter(finished_at__lte=until, answered_at=None)
    found = list(rows.values_list("pk", "finished_at")[: BATCH + 1])
    if len(found) <= BATCH:
        return _by_id(found), until
    # The rest has its turn with the next sweep. Some may have ended at the same instant.
    return _by_id(found[:BATCH]), _before(found[BATCH][1] or until, since)


def _by_id(rows: Iterable[tuple[int, datetime | None]]) -> dict[int, datetime]:
    return {pk: end for pk, end in rows if end is not None}


def _before(end: datetime, since: datetime) -> datetime:
    return max(since, end - timedelta(microseconds=1))


def _tried(using: str, lane: str, now: datetime, grace: float) -> list[int]:
    jobs = _owed(Job.objects.using(using)).filter(lane=lane, finished_at__gt=now - TOO_LATE)
    # One range of the index for each number of tries: those whose next try is not due, those
    # given up and those told are not even looked at.
    sliced = connections[using].features.supports_slicing_ordering_in_compound
    waits = {tries: timedelta(seconds=grace * 2**tries) for tries in range(1, MOST_ANSWERS)}
    ranges = [
        jobs.filter(answers=tries, finished_at__lte=now - wait) for tries, wait in waits.items()
    ]
    if sliced:
        # Or PostgreSQL may take a few of a count for so many that it reads the table.
        ranges = [some.order_by("finished_at")[:BATCH] for some in ranges]
    ids = [some.values_list("pk", flat=True) for some in ranges]
    return list(functools.reduce(lambda some, more: some.union(more, all=True), ids)[:BATCH])


def _lock(using: str, ids: Collection[int]) -> list[int]:
    if not ids:
        return []
    skips = connections[using].features.has_select_for_update_skip_locked
    mine = _owed(Job.objects.using(using)).filter(pk__in=ids).order_by("pk")
    return list(mine.select_for_update(skip_locked=skips).values_list("pk", flat=True))


def _count(using: str, held: Collection[int]) -> Untold:
    rows = Job.objects.using(using).filter(pk__in=held)
    again = tuple(_sendings(rows.filter(message__envelope__isnull=False).order_by("finished_at")))
    sent = {sending.id for sending in again}
    rows.filter(pk__in=sent).update(answers=F("answers") + 1)
    given_up = tuple(sorted(set(held) - sent))
    # Out of all ranges, so that it is said once.
    rows.filter(pk__in=given_up).update(answers=MOST_ANSWERS)
    return Untold(again=again, given_up=given_up)


def _sendings(rows: QuerySet[Job]) -> Iterator[Sending]:
    names = ("id", "public_id", "task", "plain", "awaited", "state", "sends", "message_id")
    for row in rows.values(*names, body=F("message__body"), envelope=F("message__envelope")):
        yield Sending(**{**row, "sent_at": None, "body": bytes(row["body"])})


def untry(using: str, sendings: Collection[Sending]) -> int:
    """Take back the tries of ended jobs whose messages did not reach the broker.

    But for the first: by its count the job is found again.
    """
    ended = [sending.id for sending in sendings if sending.sent_at is None]
    if not ended:
        return 0
    return (
        _owed(Job.objects.using(using))
        .filter(pk__in=ended, answers__gt=1)
        .update(answers=F("answers") - 1)
    )


def ask_again(using: str, job: NamedJob) -> bool:
    """Count one more try to tell those who wait for an ended job; False when nobody waits.

    Also False when it was tried too often: what kills every process that tells of it must not
    go round for ever.
    """
    tries = _owed(job.row(using)).filter(answers__lt=MOST_ANSWERS)
    return tries.update(answers=F("answers") + 1) == 1


def _owed(jobs: QuerySet[Job]) -> QuerySet[Job]:
    return jobs.filter(awaited=True, answered_at=None, finished_at__isnull=False)
