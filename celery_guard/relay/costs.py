"""What a job costs: the seconds for which it is expected to keep a worker busy.

Its task says so (``cost=``), else it is the mean of the runs that were measured, the latest ones most,
else that of all tasks. An expectation decides only whose turn it is, so a wrong one makes turns less fair for a while
and nothing else.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping

from celery_guard.relay.broker_app import load_app

KEEP = 30.0
"""Seconds for which what was measured is kept."""
LEAST = 0.001
"""Seconds that the shortest job is taken to cost: a claim and a commit take that long."""
UNKNOWN = 1.0
HALF = 600.0
"""Seconds after which a run counts half, beside the later ones."""
FIRST = 20
"""The runs of all time, which is what there is at first, count as no more than so many."""

Measured = Mapping[str, tuple[float, int]]
"""By task: the seconds that all its good runs took, and how many those were."""
_sources: list[Callable[[str], Measured]] = []


def measures(read: Callable[[str], Measured]) -> Callable[[str], Measured]:
    """Register what reads the run times from the ledger on an alias; a room above keeps them."""
    _sources.append(read)
    return read


@dataclasses.dataclass(slots=True)
class _Mean:
    seconds: float
    runs: float
    known: tuple[float, int]
    at: float

    def learn(self, totals: tuple[float, int], now: float) -> None:
        seconds, runs = (total - known for total, known in zip(totals, self.known, strict=True))
        if runs:
            fade = 0.5 ** ((now - self.at) / HALF)
            self.seconds, self.runs = self.seconds * fade + seconds, self.runs * fade + runs
            self.known, self.at = totals, now

    @property
    def cost(self) -> float:
        return max(LEAST, self.seconds / self.runs)


def _mean(before: _Mean | None, totals: tuple[float, int], now: float) -> _Mean:
    seconds, runs = totals
    # Smaller counts than before were begun anew; a sum may differ by how it was added up.
    if before is None or runs < before.known[1] or seconds < before.known[0] - LEAST:
        part = min(1.0, FIRST / runs)
        return _Mean(seconds * part, runs * part, totals, now)
    before.learn(totals, now)
    return before


class Costs:
    """The costs of the jobs of one ledger, as known lately."""

    def __init__(self, using: str) -> None:
        self._using = using
        self._until = 0.0
        self._measured: dict[str, _Mean] = {}
        self._all: _Mean | None = None

    @property
    def usual(self) -> float:
        """The mean of all tasks."""
        return UNKNOWN if self._all is None else self._all.cost

    def refresh(self) -> None:
        """Read what was measured, where what is known is old."""
        now = time.monotonic()
        if now < self._until:
            return
        self._until = now + KEEP
        read = {task: totals for read in _sources for task, totals in read(self._using).items()}
        found = {task: totals for task, totals in read.items() if totals[1]}
        known = self._measured
        self._measured = {task: _mean(known.get(task), of, now) for task, of in found.items()}
        if found:
            every = sum(of[0] for of in found.values()), sum(of[1] for of in found.values())
            self._all = _mean(self._all, every, now)

    def under(self, seconds: float) -> frozenset[str]:
        """The tasks whose jobs are known to cost less."""
        declared = {name: _declared(task) for name, task in load_app().tasks.items()}
        said = {name: cost for name, cost in declared.items() if cost is not None}
        known = {**{task: mean.cost for task, mean in self._measured.items()}, **said}
        return frozenset(task for task, cost in known.items() if cost < seconds)

    def of(self, task: str) -> float:
        """The cost of a job of ``task``."""
        declared = _declared(load_app().tasks.get(task))
        if declared is not None:
            return declared
        return self.usual if (mean := self._measured.get(task)) is None else mean.cost


def _declared(task: object) -> float | None:
    return getattr(getattr(task, "guard", None), "cost", None)
