"""The scaling advice of all lanes, from their fresh measurements: what the snapshot adds to its rows.

The lanes share the database's connections. Those that come first in the settings get what they
need; each later one keeps its least.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from datetime import timedelta

from celery_guard.conf import Lane, guard_settings
from celery_guard.watch import samples
from celery_guard.watch.models import LaneSample, LaneSnapshot
from celery_guard.watch.rates import Service, learn, smooth
from celery_guard.watch.scaling import Advice, Load, Past, Policy, advise


def learn_service(old: LaneSnapshot | None, row: LaneSnapshot) -> Service:
    """How fast the lane's slots are, after the time since ``old``."""
    if old is None:
        return Service()
    passed = max(0.0, (row.taken_at - old.taken_at).total_seconds())
    known = Service(rate=old.service_rate, busy=old.busy_seconds)
    went = max(0, row.completions_total - old.completions_total)
    return learn(known, busy=passed * (old.running + row.running) / 2, went=went)


def busy_slots(old: LaneSnapshot | None, row: LaneSnapshot) -> float:
    """How many slots have been busy lately, after the time since ``old``."""
    if old is None:
        return float(row.running)
    return smooth(old.busy_slots, row.running, (row.taken_at - old.taken_at).total_seconds())


def add_advice(using: str, rows: Collection[LaneSnapshot], before: dict[str, LaneSnapshot]) -> None:
    """Write the advice onto the lanes' ``rows``, and what they are into their minutes."""
    lanes = {row.lane: row for row in rows if row.lane in guard_settings().lanes}
    if not lanes:
        return
    newest = max(row.taken_at for row in rows)
    window = timedelta(seconds=guard_settings().scale.window)
    past = samples.recent(using, newest - window)
    needed: dict[str, int] = {}
    # In the order of the settings: who comes first gets connections first.
    for name in [name for name in guard_settings().lanes if name in lanes]:
        advice = _advice(lanes, name, before.get(name), past.get(name, []))
        lanes[name].desired_workers = advice.workers
        lanes[name].desired_uncapped = advice.uncapped
        lanes[name].limited_by = advice.limited_by
        needed[name] = advice.needed
    samples.add(using, list(lanes.values()), needed, past)


def _advice(
    lanes: dict[str, LaneSnapshot],
    name: str,
    old: LaneSnapshot | None,
    past: Sequence[LaneSample],
) -> Advice:
    row, lane = lanes[name], guard_settings().lane(name)
    advised = old.desired_workers if old is not None else None
    return advise(
        load_of(row),
        dataclasses.replace(policy_of(lane), database=_connections_left(lanes, name)),
        Past(
            advised=lane.min_workers if advised is None else advised,
            needed=samples.most_needed(past),
        ),
    )


def load_of(row: LaneSnapshot) -> Load:
    """What the lane has to do, as it was measured."""
    waits = (row.taken_at - row.oldest_due_at).total_seconds() if row.oldest_due_at else 0.0
    return Load(
        arrivals=max(0.0, row.arrivals_per_second),
        service_rate=row.service_rate or guard_settings().scale.service_rate,
        backlog=max(0, row.ready - row.held),
        age=max(0.0, waits),
        busy=row.busy_slots,
    )


def policy_of(lane: Lane) -> Policy:
    """What the settings want of ``lane``."""
    scale = guard_settings().scale
    return Policy(
        objective=lane.objective,
        concurrency=scale.concurrency,
        least=lane.min_workers,
        most=lane.max_workers,
        headroom=scale.headroom,
        tolerance=scale.tolerance,
        burst=scale.burst,
        provider_rate=lane.provider_rate,
    )


def _connections_left(lanes: dict[str, LaneSnapshot], name: str) -> int | None:
    scale = guard_settings().scale
    if not scale.connections:
        return None
    names = list(guard_settings().lanes)
    earlier, later = names[: names.index(name)], names[names.index(name) + 1 :]
    taken = sum(lanes[n].desired_workers or 0 for n in earlier if n in lanes)
    kept = sum(guard_settings().lane(n).min_workers for n in later)
    whole = int(scale.connections / (scale.connections_per_slot * scale.concurrency))
    return max(0, whole - taken - kept)
