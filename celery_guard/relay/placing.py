"""The lines of dependencies as one relay knows them, so that jobs are sent when they may start.

Workers ask the store of the limits, and only that decides. But a backlog that is sent faster than
its limit lets it start goes to the broker, to a worker and back, once for every job. So the relay
counts what it sends by the same rates, and gives whatever is too much a place of its own. What it
knows is a hint: several relays, a store that was wiped or a lead that was lost cost a few refusals.
"""

from __future__ import annotations

import dataclasses
import random
import time
from collections.abc import Collection, Iterable

from celery_guard.conf import guard_settings
from celery_guard.events import emit
from celery_guard.jobs.placing import HORIZON, Place, take_places
from celery_guard.jobs.sending import Sending
from celery_guard.jobs.states import Reason
from celery_guard.relay.limits.answers import Breaking, Reading, Turn
from celery_guard.relay.limits.asking import Asking
from celery_guard.relay.limits.rules import MICRO, Rules, rules_of

LOOK = 0.5
"""Seconds from one look at the store to the next, for dependencies that jobs are sent for."""
LATELY = 30.0
"""Seconds for which one is looked at after the last of its jobs."""
OTHER = 1.5
"""By so much the rate has to rise or fall until those who have places are given new ones."""
REFUSED = 2
"""Refusals between two looks that say that places come too early, as where workers began late."""
PATIENCE = 5.0
"""Seconds between two corrections for that; doubled each time, as others may be refused too."""


@dataclasses.dataclass(slots=True)
class Line:
    """One dependency: its turns, when each rate would be used up, until when nobody may call."""

    turns: tuple[Turn, ...]
    tats: list[float]
    closed_until: float = 0.0
    broken: bool = False
    placed_at: float = 0.0
    """The interval at which places were given that may still be to come; 0: none were."""
    taken_over: bool = False
    """Whether places that others gave before this relay led were dealt with."""
    asked_at: float = 0.0
    refused: int | None = None
    """How often callers have been refused, and how much oftener since the look before."""
    refused_more: int = 0
    brought_at: float = 0.0
    patience: float = PATIENCE

    def fits_in(self, now: float) -> float:
        """Seconds until one more call is in time."""
        after = [
            max(tat, now) + turn.interval * (1 - _at_once(turn))
            for tat, turn in zip(self.tats, self.turns, strict=True)
        ]
        return max([self.closed_until, *after]) - now

    def add(self, now: float) -> None:
        """One more call."""
        self.tats = [
            max(tat, now) + turn.interval for tat, turn in zip(self.tats, self.turns, strict=True)
        ]

    def renew(self, reading: Reading, now: float) -> None:
        """Learn how the dependency stands; what was counted stays counted."""
        if len(reading.turns) == len(self.turns):
            scales = [
                new.interval / old.interval
                for old, new in zip(self.turns, reading.turns, strict=True)
            ]
            counted = [
                now + max(0.0, tat - now) * scale
                for tat, scale in zip(self.tats, scales, strict=True)
            ]
        else:
            counted = [now] * len(reading.turns)
        known = reading.refused if self.refused is None else self.refused
        self.refused, self.refused_more = reading.refused, reading.refused - known
        self.turns = reading.turns
        self.closed_until = now + reading.closed / MICRO
        self.broken = reading.breaker != Breaking.CLOSED
        # Nothing is saved up while it is closed.
        rested = [self.closed_until + turn.burst * turn.interval for turn in self.turns]
        self.tats = [
            max(tat, now + turn.ahead, rest if reading.closed else 0.0)
            for tat, turn, rest in zip(counted, reading.turns, rested, strict=True)
        ]

    def is_wanted(self, now: float) -> bool:
        """Whether it has to be known how the dependency stands."""
        return now - self.asked_at < LATELY or max([0.0, *self.tats]) > now

    def is_off(self, now: float) -> bool:
        """Whether places that were given are no good: for another rate, or too early."""
        if self.closed_until > now or not self.placed_at or not self.interval:
            return False
        if self.refused_more > REFUSED and now - self.brought_at > self.patience:
            self.patience, self.brought_at = min(2 * self.patience, HORIZON), now
            return True
        return not 1 / OTHER < self.placed_at / self.interval < OTHER

    @property
    def interval(self) -> float:
        """Seconds from one call to the next, by the slowest rate."""
        return max((turn.interval for turn in self.turns), default=0.0)


def _at_once(turn: Turn) -> int:
    # Half of the burst stays with the store: jobs come a little early or late to their places.
    return (turn.burst + 1) // 2


def _line_of(rules: Rules) -> Line:
    turns = tuple(Turn(interval=b.interval / MICRO, burst=b.burst) for b in rules.buckets)
    return Line(turns=turns, tats=[0.0] * len(turns))


class Places:
    """The lines of one relay, for all the lanes that it leads."""

    def __init__(self, using: str) -> None:
        self._using = using
        self._lines: dict[str, Line] = {}
        self._looked_at = 0.0
        self._asking = Asking()

    def strained(self) -> bool:
        """Whether the next job of some dependency may have to wait."""
        now = time.monotonic()
        return any(
            line.closed_until > now
            or any(
                2 * (tat - now) > _at_once(turn) * turn.interval
                for tat, turn in zip(line.tats, line.turns, strict=True)
            )
            for line in self._lines.values()
        )

    def count(self, sendings: Iterable[Sending]) -> None:
        """Those jobs were sent without asking."""
        for sending in sendings:
            if sending.dependency and sending.sent_at is not None:
                self.go(sending.dependency)

    def closed(self, dependency: str) -> bool:
        """Whether nobody may call it now, with a place or without."""
        line = self._line(dependency)
        return line is not None and line.closed_until > time.monotonic()

    def may_go(self, dependency: str) -> bool:
        """Whether one more call of it is in time now."""
        line = self._line(dependency)
        return line is None or line.fits_in(time.monotonic()) <= 0

    def go(self, dependency: str) -> None:
        """One more is sent."""
        if (line := self._line(dependency)) is not None:
            line.add(time.monotonic())

    def place(self, dependency: str) -> Place:
        """The next place in its line."""
        line, now = self._lines[dependency], time.monotonic()
        seconds = max(0.0, line.fits_in(now))
        if seconds > HORIZON:
            return Place(seconds=random.uniform(0.5, 1.0) * HORIZON, reason=None)
        line.add(now)
        line.placed_at = line.placed_at or line.interval
        if not line.turns:
            # Nobody knows its pace; not all of them at once.
            seconds *= random.uniform(1.0, 1.1)
        return Place(seconds=seconds, reason=Reason.BREAKER if line.broken else Reason.RATE)

    def _line(self, dependency: str) -> Line | None:
        now = time.monotonic()
        line = self._lines.get(dependency)
        if line is None:
            if dependency not in guard_settings().dependencies:
                return None
            line = self._lines[dependency] = _line_of(rules_of(dependency))
            self._looked_at = 0.0
        line.asked_at = now
        return line

    def look(self, lanes: Collection[str]) -> set[str]:
        """Learn how the dependencies stand; return the lanes in which places were taken back."""
        now = time.monotonic()
        if not self._lines or now - self._looked_at < LOOK:
            return set()
        self._looked_at = now
        known = guard_settings().dependencies
        wanted = [n for n, line in self._lines.items() if n in known and line.is_wanted(now)]
        found = self._take_over(lanes)
        answer = self._asking.answer([rules_of(name) for name in wanted])
        for reading in answer.readings:
            line = self._lines[reading.name]
            line.renew(reading, answer.at)
            if line.is_off(time.monotonic()):
                found |= self._bring_forward(reading.name, line, lanes)
        return found

    def _take_over(self, lanes: Collection[str]) -> set[str]:
        found = set[str]()
        for name in [n for n, line in self._lines.items() if not line.taken_over]:
            self._lines[name].taken_over = True
            found |= self._bring_forward(name, self._lines[name], lanes)
        return found

    def _bring_forward(self, name: str, line: Line, lanes: Collection[str]) -> set[str]:
        now, found = time.monotonic(), set[str]()
        line.placed_at = 0.0
        for lane in lanes:
            if count := take_places(self._using, lane, name):
                emit("relay.places_taken", lane=lane, dependency=name, count=count)
                found.add(lane)
        if found:
            # Nothing is saved up: all of them are due now.
            line.tats = [now + max(t.ahead, t.burst * t.interval) for t in line.turns]
        return found
