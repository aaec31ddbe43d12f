"""The scaling advice as it is given out: to KEDA, to scripts, to people."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from celery_guard.watch.lanes import LaneView, oldest_snapshot

VERSION = 1
"""Of the JSON; grows when a field changes its meaning."""


class Stale(Exception):
    """There is no advice that counts: whoever asks keeps what it runs."""


def advised(lanes: Sequence[LaneView], only: str = "") -> list[LaneView]:
    """The lanes for which there is advice; just the lane ``only`` where that is given.

    :raises Stale: when there is none, or its measurement is too old. Never answered with a zero:
        that would stop the workers of a site whose relay has just died.
    """
    found = [lane for lane in lanes if lane.desired_workers is not None and only in ("", lane.name)]
    if not found:
        raise Stale(f"nothing was measured for {only}" if only else "nothing was measured")
    if late := [lane.name for lane in found if lane.stale]:
        raise Stale(f"the snapshot of {', '.join(late)} is stale")
    return found


def as_json(lanes: Sequence[LaneView]) -> dict[str, object]:
    """The advice and what it was made from. Rates are per second, times in seconds."""
    return {
        "version": VERSION,
        "generated_at": datetime.now(UTC).isoformat(),
        "snapshot_age": oldest_snapshot(lanes),
        "lanes": {lane.name: _lane(lane) for lane in lanes},
    }


def _lane(lane: LaneView) -> dict[str, object]:
    backlog = max(0, lane.ready - lane.held)
    return {
        "queue": lane.queue,
        "desired_workers": lane.desired_workers,
        "uncapped": lane.desired_uncapped,
        "limited_by": lane.limited_by,
        "workers": lane.workers,
        "slots": lane.slots,
        "slots_busy": lane.running,
        "arrival_rate": lane.arrivals,
        "completion_rate": lane.completions,
        "service_rate": lane.service_rate,
        "backlog": backlog,
        "backlog_time": backlog / lane.completions if lane.completions > 0.01 else None,
        "growth": lane.arrivals - lane.completions,
        "oldest_age": lane.age,
        "objective": lane.objective,
    }
