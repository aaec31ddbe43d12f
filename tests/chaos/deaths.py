"""Who is to die next, and who has died: arms points in seeded rotation, reads what the dead wrote."""

import dataclasses
import json
import random
import time
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path

from celery_guard.faults import POINTS, arm, disarm

PATIENCE = 12.0
"""Seconds a point stays armed. Some are passed only after another death."""
AT_ONCE = 3
NEVER_HERE = frozenset({"duty.purge", "duty.dead_letters", "settle.replaying", "settle.replayed"})
"""Points that are passed less than once in a run: nobody replays in bulk there."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """One kill: where, when by the wall clock, and which jobs the dead had in hand."""

    point: str
    at: float
    jobs: tuple[int, ...] = ()


class Rotation:
    """Keeps a few points armed, the least often died of first."""

    def __init__(self, folder: Path, dice: random.Random, only: Collection[str] = ()) -> None:
        self.deaths: list[Death] = []
        self.unreached: Counter[str] = Counter()
        self._folder = folder
        self._dice = dice
        self._points = sorted(only or POINTS.keys() - NEVER_HERE)
        self._tried: Counter[str] = Counter()
        self._armed: dict[str, float] = {}

    def turn(self) -> list[Death]:
        """Read what has died since the last turn, and arm what comes next."""
        dead = list(self._read())
        self.deaths += dead
        for death in dead:
            self._armed.pop(death.point, None)
        for point in [p for p, at in self._armed.items() if time.monotonic() - at > PATIENCE]:
            if disarm(self._folder, point):
                del self._armed[point]
                self.unreached[point] += 1
        while len(self._armed) < min(AT_ONCE, len(self._points)):
            self._arm_next()
        return dead

    def rest(self) -> None:
        """Arm nothing more."""
        self._points = []
        for point in list(self._armed):
            disarm(self._folder, point)
        self._armed.clear()
        self.deaths += self._read()

    def _arm_next(self) -> None:
        free = [point for point in self._points if point not in self._armed]
        fewest = min(self._tried[point] for point in free)
        point = self._dice.choice([p for p in free if self._tried[p] == fewest])
        self._tried[point] += 1
        self._armed[point] = time.monotonic()
        arm(self._folder, point)

    def _read(self) -> Iterator[Death]:
        for note in sorted(self._folder.glob("*.died")):
            told = json.loads(note.read_text())
            note.unlink()
            yield Death(point=told["point"], at=told["at"], jobs=tuple(told["jobs"]))
