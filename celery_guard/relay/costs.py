"""What a job costs: the seconds for which it is expected to keep a worker busy.

Its task says so (``cost=``), else it is the mean of the runs that were measured, else that of all
tasks. An expectation decides only whose turn it is, so a wrong one makes turns less fair for a while
and nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from celery_guard.relay.broker_app import load_app

KEEP = 30.0
"""Seconds for which what was measured is kept."""
LEAST = 0.001
"""Seconds that the shortest job is taken to cost: a claim and a commit take that long."""
UNKNOWN = 1.0

Measured = Mapping[str, tuple[float, int]]
"""By task: the seconds that all its good runs took, and how many those were."""
_sources: list[Callable[[str], Measured]] = []


def measures(read: Callable[[str], Measured]) -> Callable[[str], Measured]:
    """Register what reads the run times from the ledger on an alias; a room above keeps them."""
    _sources.append(read)
    return read


class Costs:
    """The costs of the jobs of one ledger, as known lately."""

    def __init__(self, using: str) -> None:
        self._using = using
        self._until = 0.0
        self._measured: dict[str, float] = {}
        self.usual = UNKNOWN

    def refresh(self) -> None:
        """Read what was measured, where what is known is old."""
        now = time.monotonic()
        if now < self._until:
            return
        self._until = now + KEEP
        found = {task: numbers for read in _sources for task, numbers in read(self._using).items()}
        self._measured = {
            task: max(LEAST, seconds / runs) for task, (seconds, runs) in found.items() if runs
        }
        runs = sum(runs for _, runs in found.values())
        if runs:
            self.usual = max(LEAST, sum(seconds for seconds, _ in found.values()) / runs)

    def under(self, seconds: float) -> frozenset[str]:
        """The tasks whose jobs are known to cost less."""
        declared = {name: _declared(task) for name, task in load_app().tasks.items()}
        said = {name: cost for name, cost in declared.items() if cost is not None}
        known = {**self._measured, **said}
        return frozenset(task for task, cost in known.items() if cost < seconds)

    def of(self, task: str) -> float:
        """The cost of a job of ``task``."""
        declared = _declared(load_app().tasks.get(task))
        return self._measured.get(task, self.usual) if declared is None else declared


def _declared(task: object) -> float | None:
    return getattr(getattr(task, "guard", None), "cost", None)
