"""Who has had how much of a lane: start-time fair queueing (Goyal, Vin, Cheng, 1996).

The lane has a clock that goes on with what is sent. What a tenant sends moves its own mark on by the
cost over its weight, and whose mark is lowest is next. So tenants that all wait get workers' time in
proportion to their weights, however long their jobs are. A tenant that comes back finds its mark at
most as far behind the clock as the others are ahead with what they hold now: it catches up with them,
and saves up nothing else while it is away.

It is a memory of fairness and of nothing else. A new leader begins with what each tenant holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from celery_guard.relay.shares import Claimant

REMEMBERED = 1000
"""Tenants of which it is kept what their jobs cost, though they have no mark."""


class VirtualTime:
    """The clock of one lane and the marks of its tenants, in seconds for each unit of weight."""

    def __init__(self) -> None:
        self._now = 0.0
        self._floor = 0.0
        self._marks: dict[str, float] = {}
        self._costs: dict[str, float] = {}

    def cost_of(self, tenant: str, usual: float) -> float:
        """What a job of ``tenant`` costs, by those it sent lately."""
        return self._costs.get(tenant, usual)

    def begin(self, holders: Mapping[str, Claimant]) -> None:
        """A look begins: ``holders`` hold something, whether they wait or not."""
        holdings = {name: c.held * c.cost / c.weight for name, c in holders.items()}
        if not self._marks:
            self._marks = dict(holdings)
            self._now = max(holdings.values(), default=0.0)
        self._floor = self._now - max(holdings.values(), default=0.0)
        # Who is that far behind is as good as unknown.
        self._marks = {name: mark for name, mark in self._marks.items() if mark > self._floor}
        if len(self._costs) > REMEMBERED:
            self._costs = {name: c for name, c in self._costs.items() if name in self._marks}

    def mark_of(self, tenant: str) -> float:
        """Where the next job of ``tenant`` begins."""
        return max(self._floor, self._marks.get(tenant, self._floor))

    def give(self, shares: Mapping[str, int], claimants: Mapping[str, Claimant]) -> None:
        """Places are given out: the clock goes on to where the last of them begins.

        So it never passes the next job of anybody who waits and may have more.
        """
        last = (claimants[name].level(count - 1) for name, count in shares.items())
        self._now = max([self._now, *last])

    def charge(self, tenant: str, weight: float, costs: Iterable[float]) -> None:
        """``tenant`` has sent jobs of these ``costs``."""
        sent = list(costs)
        self._marks[tenant] = self.mark_of(tenant) + sum(sent) / weight
        mean = sum(sent) / len(sent)
        self._costs[tenant] = (self._costs.get(tenant, mean) + mean) / 2
