"""Places in the line of a dependency: when a job that waits for it may be sent.

Who knows the lines lies in a higher room; here is what the release asks, and how the answers are
written down. A job with a place waits with the reason ``rate`` or ``breaker``, like one that a
worker was refused for, and is sent when it is due.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol

from django.db import connections, transaction
from django.db.models import Case, QuerySet, Value, When

from celery_guard.jobs.clock import DatabaseNow, database_time, in_seconds
from celery_guard.jobs.models import Job
from celery_guard.jobs.states import Reason, State

PLACED = (Reason.RATE, Reason.BREAKER)
HORIZON = 600.0
"""Seconds ahead of which no place is given: whoever is further back is looked at again."""
AT_ONCE = 100
"""Jobs that one statement gives places, each its own."""
BACK_AT_ONCE = 2000
"""Jobs that one statement takes the places from; within it they keep no order."""
STEPS = 10
"""Most such statements at once, so that the other lanes don't wait for long."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Wait so many ``seconds``; ``reason`` is kept where the place is the job's own."""

    seconds: float
    reason: str | None


class Placing(Protocol):
    """The lines of dependencies, as the leader of a lane knows them."""

    def closed(self, dependency: str) -> bool:
        """Whether nobody may call it now, with a place or without."""

    def may_go(self, dependency: str) -> bool:
        """Whether one more call of it is in time now."""

    def go(self, dependency: str) -> None:
        """One more is sent."""

    def place(self, dependency: str) -> Place:
        """The next place in its line."""


def give_places(using: str, places: Sequence[tuple[int, Place]]) -> None:
    """Put locked waiting jobs aside, each until its place comes; nothing is used up."""
    for start in range(0, len(places), AT_ONCE):
        some = places[start : start + AT_ONCE]
        due = Case(*(When(pk=pk, then=in_seconds(place.seconds)) for pk, place in some))
        mine = Job.objects.using(using).filter(pk__in=[pk for pk, _ in some], state=State.WAITING)
        mine.update(due_at=due, reason=_reasons(some))


def _reasons(places: Sequence[tuple[int, Place]]) -> Case:
    whens = [When(pk=pk, then=Value(place.reason)) for pk, place in places if place.reason]
    # One without a place of its own is new when it comes back.
    return Case(*whens, default=Value(Reason.NEW.value))


def take_places(using: str, lane: str, dependency: str) -> int:
    """Make due now what waits in ``lane`` for a place of ``dependency``; return how many there were.

    At most ``STEPS * BACK_AT_ONCE``, the oldest ones; the others keep their places.
    """
    count = 0
    for _ in range(STEPS):
        count += (moved := _take_some(using, lane, dependency))
        if moved < BACK_AT_ONCE:
            break
    return count


def _take_some(using: str, lane: str, dependency: str) -> int:
    waiting = placed(using, lane, dependency)
    skips = connections[using].features.has_select_for_update_skip_locked
    with transaction.atomic(using=using):
        rows = waiting.order_by("first_due_at", "pk").select_for_update(skip_locked=skips)
        ids = list(rows.values_list("pk", flat=True)[:BACK_AT_ONCE])
        mine = waiting.filter(pk__in=ids)
        return mine.update(due_at=DatabaseNow(), reason=Reason.NEW) if ids else 0


def placed(using: str, lane: str, dependency: str) -> QuerySet[Job]:
    """The jobs of ``lane`` that wait for a place of ``dependency`` which is still to come."""
    # Bounded on both sides by values, which an index can be searched for: jobs for far later may be
    # many, and none of them has a place.
    now = database_time(using)
    return Job.objects.using(using).filter(
        lane=lane,
        sent_at=None,
        due_at__gt=now,
        due_at__lte=now + timedelta(seconds=HORIZON),
        state=State.WAITING,
        dependency=dependency,
        reason__in=PLACED,
    )
