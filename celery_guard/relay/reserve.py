"""What a lane keeps free for its small jobs: behind long ones, they would wait for a whole long run.

Long jobs fill slots, and a place in the window is no slot: while long jobs run on all of them, whatever
else the broker holds waits. So the bound is over slots, and counts the long jobs that are sent or run.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Collection
from datetime import timedelta

from celery_guard.conf import Small, guard_settings
from celery_guard.jobs import small
from celery_guard.jobs.clock import database_time
from celery_guard.jobs.sharing import Stretch
from celery_guard.relay.costs import Costs
from celery_guard.relay.presence import Worker, slots_of

FAR = 2.0
"""Seconds from one look along the whole line to the next."""
BACK = timedelta(seconds=5)
"""How far back from the end of the line new small jobs are looked for: a commit may take a while."""


def most_long(kept: Small, slots: int) -> int:
    """How many of ``slots`` long jobs may take."""
    # Rounded before: 0.1 of 30 is a little more than 3.
    return max(1, slots - math.ceil(round(kept.share * slots, 6)))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """How many more ``longs`` may go now, and which ``tasks`` are none."""

    longs: int
    tasks: frozenset[str]


def bound_of(using: str, lane: str, workers: Collection[Worker], costs: Costs) -> Bound | None:
    """What long jobs of ``lane`` may still take; None where nothing is kept, or no slot is known."""
    settings = guard_settings().lane(lane)
    if settings.small is None or not (slots := slots_of(settings.queue, workers)):
        return None
    costs.refresh()
    tasks = costs.under(settings.small.under)
    longs = most_long(settings.small, slots) - small.longs_held(using, lane, tasks)
    return Bound(longs=max(0, longs), tasks=tasks)


class SmallOnes:
    """Where the small jobs of one lane stand, as its leader saw it. A hint only."""

    def __init__(self, using: str) -> None:
        self._using = using
        self._far_at = 0.0
        self._stretches: list[Stretch] = []

    def due(self, lane: str, tasks: frozenset[str]) -> dict[int, str]:
        """The small jobs that are due, as far as they are known: the oldest first, and whose."""
        now = time.monotonic()
        if now >= self._far_at:
            self._stretches = self._look_far(lane, tasks)
            self._far_at = now + FAR
        found: dict[int, str] = {}
        for stretch in self._stretches:
            found |= small.due_in(self._using, lane, tasks, stretch)
        return found

    def _look_far(self, lane: str, tasks: frozenset[str]) -> list[Stretch]:
        # Before the look: whatever comes meanwhile is behind it.
        end = Stretch(since=database_time(self._using) - BACK)
        first = small.find(self._using, lane, tasks)
        return [end] if first is None else [first, end]
