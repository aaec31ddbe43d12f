"""What was last measured of the lanes, as admission reads it.

The table is the snapshot's, which the room above writes; it is reached by its name, because rooms
import downwards only. A process reads it at most once in ``KEEPS`` seconds.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.apps import apps
from django.db.models import OuterRef, Subquery, Value
from django.db.models.functions import Concat

from celery_guard.conf import Settings, guard_settings
from celery_guard.enqueue.admission.limits import scope_of
from celery_guard.enqueue.admission.models import Gate
from celery_guard.jobs.clock import DatabaseNow

KEEPS = 1.0
RATED = 20
"""Completions below which a lane's rate is no base for a prediction."""
SLOWEST = 0.01
"""Jobs a second below which a lane counts as that slow: a wait must stay a number."""
LEARNS = 30.0
"""Seconds of backlog after which a lane's own rate tells more than what its slots could do."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One lane as the newest snapshot has it: ``age`` and ``wait`` in seconds, rates a second.

    ``wait`` is how long a job that comes now has to wait for its start, ``completions`` how many
    end; both are None while too few have ended to tell. ``closed``: it was under pressure lately.
    """

    ready: int
    age: float
    wait: float | None
    arrivals: float
    completions: float | None
    stale: bool
    closed: bool


_kept: dict[str, tuple[float, Settings, Mapping[str, Measured]]] = {}


def measured(using: str) -> Mapping[str, Measured]:
    """The measured lanes of the ledger on ``using`` by name; one never measured is not there."""
    settings = guard_settings()
    read_at, made_under, lanes = _kept.get(using, (0.0, None, {}))
    if made_under is not settings or time.monotonic() - read_at > KEEPS:
        lanes = _read(using)
        _kept[using] = (time.monotonic(), settings, lanes)
    return lanes


def forget() -> None:
    """Read anew at the next look."""
    _kept.clear()


def _read(using: str) -> dict[str, Measured]:
    gate = Gate.objects.filter(scope=Concat(Value(scope_of("")), OuterRef("lane")))
    snapshots: Any = apps.get_model("celery_guard", "LaneSnapshot")
    found = snapshots.objects.using(using).annotate(
        now=DatabaseNow(), closed_until=Subquery(gate.values("closed_until")[:1])
    )
    return {row.lane: _measured(row) for row in found}


def _measured(row: Any) -> Measured:
    age = _seconds(row.now, row.oldest_due_at)
    completions = _completions(row, age) if row.completions_total >= RATED else None
    return Measured(
        ready=row.ready,
        age=age,
        wait=_wait(row, completions),
        arrivals=max(0.0, row.arrivals_per_second),
        completions=completions,
        stale=_seconds(row.now, row.taken_at) > guard_settings().snapshot.counts_for,
        closed=row.closed_until is not None and row.closed_until > row.now,
    )


def _completions(row: Any, age: float) -> float:
    # After a quiet time the average has forgotten what the lane can do, and learns it anew only
    # while jobs wait.
    fading = math.exp(-age / LEARNS)
    return float(max(SLOWEST, row.completions_per_second, fading * _could_do(row)))


def _could_do(row: Any) -> float:
    if not row.service_rate:
        return 0.0
    # Slots that have been busy for longer than a job takes, and ended none, are slower by now.
    since = max(row.busy_seconds, 1 / row.service_rate)
    return float(row.slots / since)


def _seconds(now: datetime, since: datetime | None) -> float:
    return 0.0 if since is None else max(0.0, (now - since).total_seconds())


def _wait(row: Any, completions: float | None) -> float | None:
    # Jobs that find a free slot wait for nobody.
    ahead = row.ready - max(0, row.slots - row.running)
    if ahead <= 0:
        return 0.0
    return None if completions is None else ahead / completions
