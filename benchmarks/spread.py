"""The arithmetic: ratios within a round, medians and quartiles over rounds."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Metrics = Mapping[str, float]
Rounds = Sequence[Metrics | None]
"""One entry a round; None where that measurement failed."""

QUARTILES_FROM = 4
"""With fewer values the spread is their range: quartiles of three numbers are invented."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """The median of some values, with their lower and upper quartile (or their range)."""

    median: float
    low: float
    high: float
    count: int


def spread(values: Sequence[float]) -> Spread:
    """Return the median and the spread of the values.

    Raises `ValueError` when there are none.
    """
    if not values:
        raise ValueError("no values")
    low, high = min(values), max(values)
    if len(values) >= QUARTILES_FROM:
        low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return Spread(median=statistics.median(values), low=low, high=high, count=len(values))


def ratios(above: Rounds, below: Rounds, metric: str) -> list[float]:
    """Divide `above` by `below` round by round; rounds where one of them failed are left out."""
    pairs = zip(above, below, strict=True)
    return [
        one[metric] / other[metric]
        for one, other in pairs
        if one and other and other.get(metric) and metric in one
    ]


def added_ratios(one: Rounds, other: Rounds, floor: Rounds, metric: str) -> list[float]:
    """Divide what `one` adds over `floor` by what `other` adds over it, round by round.

    Rounds in which `other` adds nothing measurable are left out.
    """
    triples = zip(one, other, floor, strict=True)
    return [
        (mine[metric] - least[metric]) / (theirs[metric] - least[metric])
        for mine, theirs, least in triples
        if mine and theirs and least and theirs[metric] > least[metric]
    ]


def values(rounds: Rounds, metric: str) -> list[float]:
    """Return the metric of every round that has it."""
    return [one[metric] for one in rounds if one and metric in one]


def medians(rounds: Rounds) -> dict[str, float]:
    """Return the median of every metric that occurs."""
    names = dict.fromkeys(name for one in rounds if one for name in one)
    return {name: statistics.median(values(rounds, name)) for name in names}
