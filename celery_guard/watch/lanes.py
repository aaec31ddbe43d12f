"""The snapshot as everybody reads it: ages as of now, against each lane's objective."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from datetime import datetime, timedelta

from django.db.models import Exists, OuterRef, Q, QuerySet

from celery_guard.conf import guard_settings
from celery_guard.enqueue.steering.models import Action, Switch
from celery_guard.jobs.clock import DatabaseNow
from celery_guard.relay.limits.models import LimitChange
from celery_guard.watch.models import LaneSnapshot


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LaneView:
    """One lane as it was measured ``snapshot_age`` seconds ago; ages count until now.

    ``age`` is how long the oldest due job has waited for its first start, 0 when none waits.
    ``stuck_for`` is how long the relay has left what it could have sent. ``dead_letters`` is
    None while it is not known; with ``capped`` the counts are "at least". ``service_rate`` is None
    until a job has ended, ``desired_workers`` and its like before the first advice. ``paused``: a
    switch holds the whole lane, so nobody expects the relay to send. ``limited``: somebody has set
    some dependency's limits at run time.
    """

    name: str
    queue: str
    objective: float
    ready: int
    scheduled: int
    sent: int
    running: int
    retrying: int
    capped: bool
    age: float
    pending: int
    stuck_for: float
    dead_letters: int | None
    arrivals: float
    completions: float
    completions_total: int
    held: int
    slots: int
    workers: int
    service_rate: float | None
    desired_workers: int | None
    desired_uncapped: int | None
    limited_by: str
    taken_at: datetime
    snapshot_age: float
    paused: bool = False
    limited: bool = False

    @property
    def read_at(self) -> datetime:
        """The database's time when this was read."""
        return self.taken_at + timedelta(seconds=self.snapshot_age)

    @property
    def late(self) -> bool:
        """Whether a job has waited longer than the lane's objective."""
        return self.age > self.objective

    @property
    def stale(self) -> bool:
        """Whether the measurement is too old to count."""
        return self.snapshot_age > stale_after()

    @property
    def stopped(self) -> bool:
        """Whether jobs wait past their objective and nothing starts or runs."""
        return self.late and not self.running and self.completions < 0.01


def stale_after() -> float:
    """Seconds after which a snapshot no longer counts."""
    return guard_settings().snapshot.counts_for


def read_lanes(using: str) -> list[LaneView]:
    """All measured lanes of the ledger on ``using``: those of the settings first, in their order."""
    rows = LaneSnapshot.objects.using(using).annotate(
        read_at=DatabaseNow(),
        paused=Exists(closing()),
        limited=Exists(LimitChange.objects.in_force()),
    )
    order = {name: place for place, name in enumerate(guard_settings().lanes)}
    found = sorted(rows, key=lambda row: (order.get(row.lane, len(order)), row.lane))
    return [
        dataclasses.replace(_view(row, row.read_at, row.paused), limited=row.limited)
        for row in found
    ]


def closing() -> QuerySet[Switch]:
    """The holds in force on the whole of a lane; for use inside a query of lanes."""
    anywhere = Switch.objects.filter(action=Action.HOLD, task="", tenant="")
    lanes = Q(lane="") | Q(lane=OuterRef("lane"))
    return anywhere.filter(lanes, ended_at=None, expires_at__gt=DatabaseNow())


def _view(row: LaneSnapshot, now: datetime, paused: bool) -> LaneView:
    lane = guard_settings().lane(row.lane)
    return LaneView(
        name=row.lane,
        queue=lane.queue,
        objective=lane.objective,
        ready=row.ready,
        scheduled=row.scheduled,
        sent=row.sent,
        running=row.running,
        retrying=row.retrying,
        capped=row.capped,
        age=_seconds(now, row.oldest_due_at),
        pending=row.pending,
        stuck_for=0.0 if paused else _seconds(now, row.stuck_since),
        dead_letters=row.dead_letters,
        arrivals=max(0.0, row.arrivals_per_second),
        completions=max(0.0, row.completions_per_second),
        completions_total=row.completions_total,
        held=row.held,
        slots=row.slots,
        workers=row.workers,
        service_rate=row.service_rate,
        desired_workers=row.desired_workers,
        desired_uncapped=row.desired_uncapped,
        limited_by=row.limited_by,
        taken_at=row.taken_at,
        paused=paused,
        snapshot_age=_seconds(now, row.taken_at),
    )


def _seconds(now: datetime, since: datetime | None) -> float:
    return 0.0 if since is None else max(0.0, (now - since).total_seconds())


def oldest_snapshot(lanes: Iterable[LaneView]) -> float | None:
    """The age in seconds of the oldest measurement; None when nothing was ever measured."""
    return max((lane.snapshot_age for lane in lanes), default=None)
