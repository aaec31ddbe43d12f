"""The duty that measures every lane and writes what it found.

Each lane is measured in a short transaction of its own: one that can't be measured in time
keeps its old row and grows stale, and the others don't.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Collection
from datetime import datetime

from django.db import OperationalError, connections

from celery_guard.conf import guard_settings
from celery_guard.events import emit
from celery_guard.jobs.clock import database_time
from celery_guard.jobs.lazily import lazy_transaction
from celery_guard.relay.costs import Costs
from celery_guard.relay.duties import duty
from celery_guard.relay.lead import find_lanes
from celery_guard.relay.presence import Worker, live_workers, slots_of, window_of
from celery_guard.relay.reserve import bound_of
from celery_guard.watch import brokers, counters, database
from celery_guard.watch.advising import add_advice, busy_slots, learn_service
from celery_guard.watch.bounded import bounded, timed_out
from celery_guard.watch.completions import count_completion
from celery_guard.watch.dead_letters import dead_letters
from celery_guard.watch.measuring import Measured, measure
from celery_guard.watch.models import LaneSnapshot
from celery_guard.watch.rates import Flow, advance

LANES_MOST = 32
"""Lanes outside the settings that are measured: queue names made per request must not hurt."""
FED_BY = count_completion
"""Loaded with the snapshot: what the completions are counted by, in every worker."""
TIME_MOST = 2.0
"""Longest that one query may take, in seconds."""

_costs: dict[str, Costs] = {}
_MEASURED = [f.name for f in LaneSnapshot._meta.concrete_fields if not f.primary_key]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """What is the same for all lanes of one measurement."""

    using: str
    now: datetime
    workers: list[Worker]
    completions: dict[str, int]
    dead_letters: dict[str, int] | None
    before: dict[str, LaneSnapshot]
    costs: Costs


@duty("snapshot", every=lambda: guard_settings().snapshot.every)
def take_snapshot(using: str) -> None:
    """Measure every lane of the ledger on ``using`` and drop the rows of vanished lanes."""
    this = Round(
        using=using,
        now=database_time(using),
        workers=live_workers(using),
        completions=counters.totals(using, counters.COMPLETIONS),
        dead_letters=dead_letters(using),
        before=LaneSnapshot.objects.using(using).in_bulk(),
        costs=_costs.setdefault(using, Costs(using)),
    )
    lanes = _lanes(using)
    measured = {lane: _measure(this, lane) for lane in lanes}
    rows = [_row(this, lane, found) for lane, found in measured.items() if found is not None]
    failed = {lane for lane, found in measured.items() if found is None}
    # What a crash of the server undoes is measured anew.
    with lazy_transaction(using):
        add_advice(using, rows, this.before)
        _write(using, [row for row in rows if _is_alive(row)], failed)
    # After the lanes: nothing here may hold them up.
    database.sample(using, this.now)
    if using == guard_settings().using:
        brokers.sample(using, this.now, this.workers)


def _lanes(using: str) -> list[str]:
    own = guard_settings().lanes
    others = sorted(find_lanes(using) - set(own))
    if len(others) > LANES_MOST:
        emit("watch.lanes_left_out", logging.WARNING, count=len(others) - LANES_MOST)
    return [*own, *others[:LANES_MOST]]


def _measure(this: Round, lane: str) -> Measured | None:
    try:
        with bounded(this.using, TIME_MOST):
            bound = bound_of(this.using, lane, this.workers, this.costs)
            return measure(this.using, lane, window_of(lane, this.workers), this.now, bound)
    except OperationalError as error:
        if not timed_out(error):
            raise
        emit("watch.lane_not_measured", logging.WARNING, lane=lane, error=str(error))
        return None


def _row(this: Round, lane: str, found: Measured) -> LaneSnapshot:
    old = this.before.get(lane)
    flow = Flow(
        at=this.now,
        available=found.available,
        floor=found.capped,
        gone=this.completions.get(lane, 0),
    )
    if old is not None:
        flow = advance(_flow(old), flow)
    queue = guard_settings().lane(lane).queue
    row = LaneSnapshot(
        lane=lane,
        taken_at=this.now,
        slots=slots_of(queue, this.workers) or 0,
        workers=sum(queue in worker.queues for worker in this.workers),
        arrivals_per_second=flow.arrivals,
        completions_per_second=flow.completions,
        completions_total=flow.gone,
        dead_letters=None if this.dead_letters is None else this.dead_letters.get(lane, 0),
        **dataclasses.asdict(found),
    )
    service = learn_service(old, row)
    row.service_rate, row.busy_seconds = service.rate, service.busy
    row.busy_slots = busy_slots(old, row)
    return row


def _flow(row: LaneSnapshot) -> Flow:
    return Flow(
        at=row.taken_at,
        available=row.ready + row.running + row.retrying,
        floor=row.capped,
        gone=row.completions_total,
        arrivals=row.arrivals_per_second,
        completions=row.completions_per_second,
    )


def _is_alive(row: LaneSnapshot) -> bool:
    """A lane of the settings, or one that still holds something."""
    holds = (row.ready, row.scheduled, row.running, row.retrying, row.dead_letters)
    return row.lane in guard_settings().lanes or any(holds)


def _write(using: str, rows: Collection[LaneSnapshot], failed: set[str]) -> None:
    snapshots = LaneSnapshot.objects.using(using)
    # MariaDB takes no list of unique fields: any unique key counts there.
    unique = [] if connections[using].vendor == "mysql" else ["lane"]
    snapshots.bulk_create(
        # In one order, so that two writers at once can't deadlock.
        sorted(rows, key=lambda row: row.lane),
        update_conflicts=True,
        update_fields=_MEASURED,
        unique_fields=unique,
    )
    snapshots.exclude(lane__in=[*(row.lane for row in rows), *failed]).delete()
