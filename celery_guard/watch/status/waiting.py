"""How long a job will wait, from its lane's rates, and when to ask again."""

from __future__ import annotations

import dataclasses
import math
from datetime import datetime

from celery_guard.jobs.models import Job
from celery_guard.jobs.states import TERMINAL, State
from celery_guard.watch.lanes import LaneView

ASK_MOST = 60
"""Longest time between two looks that is advised, in seconds."""
UNKNOWN = 5
"""The same where nothing is known of the wait."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A waiting job's place in its lane: due in ``due_in`` seconds, due for ``waited`` so far."""

    due_in: float
    waited: float


def predicted_wait(job: Job, lane: LaneView | None, now: datetime) -> float | None:
    """Seconds until a waiting job starts, None where that can't be told or it does not wait."""
    if job.state != State.WAITING or job.due_at is None or lane is None or lane.stale:
        return None
    due_in = max(0.0, (job.due_at - now).total_seconds())
    waited = max(0.0, (now - job.first_due_at).total_seconds())
    return predict(Place(due_in=due_in, waited=waited), lane)


def predict(place: Place, lane: LaneView) -> float | None:
    """The wait of a job at ``place``: what is ahead of it over the rate at which jobs end.

    Ahead of a job is the part of the line that is older (the ages are taken to be spread evenly),
    and of one that is due later, what will be left of the line by then: Little's law either way.
    None where the lane does not move.
    """
    free = lane.slots - lane.running
    ahead = _ahead(place, lane)
    if ahead < free:
        return place.due_in
    if lane.completions < 0.01:
        return None
    return place.due_in + ahead / lane.completions


def _ahead(place: Place, lane: LaneView) -> float:
    if place.due_in:
        return max(0.0, lane.ready + (lane.arrivals - lane.completions) * place.due_in)
    older = 1 - min(1.0, place.waited / lane.age) if lane.age else 1.0
    return max(0.0, lane.ready - 1) * older


def ask_after(job: Job, wait: float | None, now: datetime) -> int | None:
    """Whole seconds after which another look is worth while; None when nothing will change.

    A running job is looked at less often the longer it runs.
    """
    if job.state in TERMINAL:
        return None
    if job.state == State.WAITING:
        return _bounded(UNKNOWN if wait is None else wait)
    since = job.started_at or now
    return _bounded((now - since).total_seconds() / 10)


def _bounded(seconds: float) -> int:
    return max(1, min(ASK_MOST, math.ceil(seconds)))
