"""Fair shares: how many jobs each tenant may have sent now, by what it holds already.

Weighted round robin without a memory: of the jobs that may go out, each goes to the tenant that
would then hold least for its weight, counting what is with the broker and what runs. A tenant that
is alone gets everything; one that comes to a flooded lane is next.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimant:
    """A tenant that waits: it ``held`` that many jobs when it was counted.

    ``weight`` is its part relative to others; ``most`` bounds what it may hold, None does not.
    """

    held: int
    weight: float = 1.0
    most: int | None = None

    def level(self, more: int) -> float:
        """What it would hold for its weight with one more than ``more`` new jobs."""
        return (self.held + more + 1) / self.weight

    def is_full(self, more: int) -> bool:
        """Whether ``more`` new jobs bring it to its bound."""
        return self.most is not None and self.held + more >= self.most


def share(room: int, claimants: Mapping[str, Claimant]) -> dict[str, int]:
    """How ``room`` places are given out; who gets none is left out.

    A tenant may have fewer jobs than its share; what it leaves is given out at the next look.
    """
    given: dict[str, int] = {}
    line = [(c.level(0), name) for name, c in claimants.items() if not c.is_full(0)]
    heapq.heapify(line)
    while room > 0 and line:
        _, name = heapq.heappop(line)
        given[name] = more = given.get(name, 0) + 1
        room -= 1
        if not claimants[name].is_full(more):
            heapq.heappush(line, (claimants[name].level(more), name))
    return given
