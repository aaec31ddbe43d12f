"""One lane, measured by a fixed number of bounded queries on the index (lane, sent_at, due_at).

A count that needs the index alone stops at ``COUNT_MOST``, one that needs the rows at
``ROWS_MOST``; a million waiting jobs cost no more than that. Ages are exact while fewer than
``HEAD`` jobs are due, and looked for among the ``HEAD`` next in line beyond that.
"""

from __future__ import annotations

import dataclasses
from datetime import datetime
from typing import Any

from django.db.models import Count, Max, Min, Q, QuerySet

from celery_guard.jobs.models import Job
from celery_guard.jobs.small import of_tasks
from celery_guard.jobs.states import State
from celery_guard.relay.reserve import Bound

COUNT_MOST = 100_000
ROWS_MOST = 10_000
HEAD = 1_000


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What one lane held at one moment; see ``LaneSnapshot`` for the words."""

    ready: int
    held: int
    scheduled: int
    sent: int
    running: int
    retrying: int
    capped: bool
    oldest_due_at: datetime | None
    pending: int
    stuck_since: datetime | None

    @property
    def available(self) -> int:
        """Jobs that have been due at least once and have not ended."""
        return self.ready + self.running + self.retrying


def measure(
    using: str, lane: str, window: int | None, now: datetime, bound: Bound | None = None
) -> Measured:
    """Count ``lane`` as of ``now``, the database's time.

    :param window: most unfinished jobs the broker may hold, None for no bound.
    :param bound: how many long jobs may go besides small ones; None: any number.
    """
    # ``now`` is a parameter: a volatile clock can't bound an index range.
    jobs = Job.objects.using(using).filter(lane=lane)
    due, later = _due(jobs, now), _later(jobs, now)
    flight = _in_flight(jobs, now)
    held, scheduled, retrying = later["held"], later["scheduled"], later["retrying"]
    # What waits for a provider's answer holds no worker, but still counts for the window.
    retrying += flight["reconciling"]
    started = flight["running"] + flight["reconciling"] + flight["sent"]
    room = due["count"] if window is None else max(0, window - started)
    free, first = (due["count"], due["first"]) if bound is None else _free(jobs, now, due, bound)
    pending = min(free, room)
    return Measured(
        ready=due["count"] + held + flight["sent"],
        held=held,
        scheduled=scheduled,
        sent=flight["sent"],
        running=flight["running"],
        retrying=retrying,
        capped=due["count"] >= COUNT_MOST or max(started, held + scheduled + retrying) >= ROWS_MOST,
        oldest_due_at=_earliest(due["oldest"], later["oldest"], flight["oldest"]),
        pending=pending,
        stuck_since=_stuck_since(jobs, first) if pending else None,
    )


def _due(jobs: QuerySet[Job], now: datetime) -> dict[str, Any]:
    # sent_at is NULL in every row; naming it lets the planner read the index in order.
    line = jobs.filter(sent_at=None, due_at__lte=now).order_by("sent_at", "due_at")
    head = line[:HEAD].aggregate(
        oldest=Min("first_due_at", filter=Q(starts=0)), first=Min("due_at")
    )
    return {**head, "count": line.values("due_at")[:COUNT_MOST].count()}


def _free(
    jobs: QuerySet[Job], now: datetime, due: dict[str, Any], bound: Bound
) -> tuple[int, datetime | None]:
    # Long jobs past their bound are left in the line on purpose.
    line = jobs.filter(sent_at=None, due_at__lte=now).order_by("sent_at", "due_at")
    mine = of_tasks(bound.tasks)
    small = line[:ROWS_MOST].aggregate(
        count=Count("pk", filter=mine), first=Min("due_at", filter=mine)
    )
    longs = min(due["count"] - small["count"], bound.longs)
    return small["count"] + longs, due["first"] if longs else small["first"]


def _later(jobs: QuerySet[Job], now: datetime) -> dict[str, Any]:
    line = jobs.filter(sent_at=None, due_at__gt=now).order_by("sent_at", "due_at")
    # A job that never started and was due before is only held back: by an outage, by a limit.
    held = Q(starts=0, first_due_at__lte=now)
    return line[:ROWS_MOST].aggregate(
        held=Count("pk", filter=held),
        scheduled=Count("pk", filter=Q(starts=0, first_due_at__gt=now)),
        retrying=Count("pk", filter=Q(starts__gt=0)),
        oldest=Min("first_due_at", filter=held),
    )


def _in_flight(jobs: QuerySet[Job], now: datetime) -> dict[str, Any]:
    flight = jobs.filter(sent_at__isnull=False).order_by("sent_at", "due_at")
    waiting = Q(state=State.WAITING)
    return flight[:ROWS_MOST].aggregate(
        sent=Count("pk", filter=waiting),
        running=Count("pk", filter=Q(state=State.RUNNING)),
        reconciling=Count("pk", filter=Q(state=State.RECONCILING)),
        oldest=Min("first_due_at", filter=waiting & Q(starts=0)),
    )


def _stuck_since(jobs: QuerySet[Job], first_due: datetime | None) -> datetime | None:
    # A relay that sends at all is not stuck, however long the line behind the window is.
    newest = jobs.filter(sent_at__isnull=False).aggregate(newest=Max("sent_at"))["newest"]
    return max((t for t in (first_due, newest) if t is not None), default=None)


def _earliest(*times: datetime | None) -> datetime | None:
    return min((t for t in times if t is not None), default=None)
