"""Adding up: what was owed, what happened, and the difference."""

import dataclasses
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

Seen = Sequence[tuple[int, float]]
"""Order and wall-clock time of every effect of one kind, as its witness counted them."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of effect against the orders that were accepted."""

    name: str
    witness: str
    count: int
    lost: int
    duplicated: int
    strangers: int
    """Effects of orders that nobody was told had been accepted."""
    p50_ms: float
    p95_ms: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """The end of the story, in figures."""

    orders: int
    kinds: tuple[Kind, ...]
    p50_ms: float
    p95_ms: float

    @property
    def lost(self) -> int:
        """Effects that accepted orders never got."""
        return sum(kind.lost for kind in self.kinds)

    @property
    def duplicated(self) -> int:
        """Effects too many: further ones of an order, and those of no accepted order."""
        return sum(kind.duplicated + kind.strangers for kind in self.kinds)

    def count(self, name: str) -> int:
        """How many effects of the kind called ``name`` there are."""
        return next(kind.count for kind in self.kinds if kind.name == name)


def tally(
    committed: Mapping[int, float], seen: Mapping[str, Seen], witnesses: Mapping[str, str]
) -> Tally:
    """Compare every kind of effect with the accepted orders.

    :param committed: accepted orders and the wall-clock time of their commit, in seconds.
    :param seen: per kind, what its witness counted.
    :param witnesses: per kind, who counted.
    """
    delays = {name: _delays(committed, effects) for name, effects in seen.items()}
    together = [delay for some in delays.values() for delay in some]
    kinds = [_kind(name, witnesses[name], committed, seen[name], delays[name]) for name in seen]
    return Tally(
        orders=len(committed),
        kinds=tuple(kinds),
        p50_ms=percentile(together, 50),
        p95_ms=percentile(together, 95),
    )


def percentile(values: Iterable[float], percent: float) -> float:
    """The nearest-rank percentile; NaN of nothing."""
    ordered = sorted(values)
    if not ordered:
        return math.nan
    return ordered[max(0, math.ceil(percent / 100 * len(ordered)) - 1)]


def _delays(committed: Mapping[int, float], effects: Seen) -> list[float]:
    first: dict[int, float] = {}
    for order, at in effects:
        first[order] = min(at, first.get(order, at))
    # An effect can be quicker than the web process is at reading the clock after its commit.
    return [
        max(0.0, at - committed[order]) * 1000 for order, at in first.items() if order in committed
    ]


def _kind(
    name: str,
    witness: str,
    committed: Mapping[int, float],
    effects: Seen,
    delays: Sequence[float],
) -> Kind:
    per_order = Counter(order for order, _ in effects)
    return Kind(
        name=name,
        witness=witness,
        count=len(effects),
        lost=sum(order not in per_order for order in committed),
        duplicated=sum(n - 1 for order, n in per_order.items() if order in committed),
        strangers=sum(n for order, n in per_order.items() if order not in committed),
        p50_ms=percentile(delays, 50),
        p95_ms=percentile(delays, 95),
    )
