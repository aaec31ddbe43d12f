"""Whether jobs start: the one question of a health check."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Literal

from celery_guard.watch.lanes import LaneView, oldest_snapshot, stale_after
from celery_guard.watch.spoken import spoken


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """What is wrong. ``stale``: nobody measures, no number counts; ``stopped``: jobs wait past
    their objective and nothing starts; ``away``: the database does not answer."""

    kind: Literal["stale", "stopped", "away"]
    says: str


def trouble_in(lanes: Sequence[LaneView] | None) -> Trouble | None:
    """What is wrong with ``lanes``, None when nothing is; without lanes the database is away."""
    if lanes is None:
        return Trouble(kind="away", says="the database does not answer")
    age = oldest_snapshot(lanes)
    if age is None:
        says = "nothing was ever measured: no relay and no worker has run"
        return Trouble(kind="stale", says=says)
    if age > stale_after():
        says = f"the snapshot is {spoken(age)} old: no relay and no worker measures"
        return Trouble(kind="stale", says=says)
    if stopped := [f"{lane.name} ({_why(lane)})" for lane in lanes if lane.stopped]:
        says = f"jobs wait and nothing starts in {', '.join(stopped)}"
        return Trouble(kind="stopped", says=says)
    return None


def _why(lane: LaneView) -> str:
    if lane.paused:
        return "paused"
    return "no worker" if not lane.slots else f"{lane.slots} slots"
