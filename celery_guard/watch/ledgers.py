"""The lanes of a site whose tasks keep their jobs in more than one database."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

from celery_guard.conf import guard_settings
from celery_guard.relay.broker_app import ledgers, load_app
from celery_guard.watch.lanes import LaneView, read_lanes


def read_all_lanes() -> list[LaneView]:
    """The lanes of all ledgers; a lane that several of them hold is told as one."""
    lanes: dict[str, list[LaneView]] = {}
    for using in ledgers(load_app()):
        for lane in read_lanes(using):
            lanes.setdefault(lane.name, []).append(lane)
    return [functools.reduce(together, views) for views in lanes.values()]


_ADDED = (
    "ready",
    "scheduled",
    "sent",
    "running",
    "held",
    "retrying",
    "pending",
    "arrivals",
    "completions",
    "completions_total",
)
_WORST = ("capped", "age", "stuck_for", "snapshot_age", "paused", "limited")


def together(one: LaneView, other: LaneView) -> LaneView:
    """One lane in two ledgers: what adds up is added, of the rest the worse counts.

    The same workers serve both, so their slots are not added.
    """
    unknown = one.dead_letters is None or other.dead_letters is None
    return dataclasses.replace(
        one,
        **{name: getattr(one, name) + getattr(other, name) for name in _ADDED},
        **{name: max(getattr(one, name), getattr(other, name)) for name in _WORST},
        dead_letters=None if unknown else (one.dead_letters or 0) + (other.dead_letters or 0),
        slots=max(one.slots, other.slots),
        workers=max(one.workers, other.workers),
        **_advice(one, other),
        taken_at=min(one.taken_at, other.taken_at),
    )


def _advice(one: LaneView, other: LaneView) -> dict[str, Any]:
    if one.desired_workers is None or other.desired_workers is None:
        return {}
    most = guard_settings().lane(one.name).max_workers
    return {
        "desired_workers": min(most, one.desired_workers + other.desired_workers),
        "desired_uncapped": (one.desired_uncapped or 0) + (other.desired_uncapped or 0),
        "limited_by": max((one, other), key=lambda lane: lane.limited_by != "none").limited_by,
    }
