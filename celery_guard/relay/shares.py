"""Fair shares: how many jobs each tenant may have sent now, by how much of the lane it has had.

Of the jobs that may go out, each goes to the tenant whose mark is lowest, and moves that mark on by
what the job costs for the tenant's weight. A tenant that is alone gets everything; one that comes to a
flooded lane is next.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimant:
    """A tenant that waits: it ``held`` that many jobs when it was counted.

    ``weight`` is its part relative to others; ``most`` bounds what it may hold, None does not. Its
    jobs take ``cost`` seconds each; ``mark`` is how much of the lane it has had, None: what it holds.
    """

    held: int
    weight: float = 1.0
    most: int | None = None
    cost: float = 1.0
    mark: float | None = None

    def level(self, more: int) -> float:
        """Its mark after ``more`` new jobs."""
        begins = self.held * self.cost / self.weight if self.mark is None else self.mark
        return begins + more * self.cost / self.weight

    def is_full(self, more: int) -> bool:
        """Whether ``more`` new jobs bring it to its bound."""
        return self.most is not None and self.held + more >= self.most


def share(room: int, claimants: Mapping[str, Claimant]) -> dict[str, int]:
    """How ``room`` places are given out; who gets none is left out.

    A tenant may have fewer jobs than its share; what it leaves is given out at the next look.
    """
    given: dict[str, int] = {}
    # Of equals the one goes first whose job is over sooner.
    line = [(c.level(0), c.level(1), n) for n, c in claimants.items() if not c.is_full(0)]
    heapq.heapify(line)
    while room > 0 and line:
        _, _, name = heapq.heappop(line)
        given[name] = more = given.get(name, 0) + 1
        room -= 1
        if not claimants[name].is_full(more):
            mine = claimants[name]
            heapq.heappush(line, (mine.level(more), mine.level(more + 1), name))
    return given
