"""The rows of the report and their bars, as data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.spread import Spread

GROWING = (
    *("enqueue", "release", "claim and finish", "admission", "snapshot", "sweep", "rescue"),
    *("purge, a thousand rows", "status", "metrics", "full admin pages, together"),
)
"""What row 12 measures beside history, one bar each."""
LEVELLED = ("memory", "tables", "indexes")
LEVELS = ", last quarter ÷ second"
GROWTH = ", processor time beside the most ÷ beside the least"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One measured figure of a row; without bounds it is only reported."""

    name: str
    at_least: float | None = None
    at_most: float | None = None
    unit: str = "×"

    @property
    def bound(self) -> float | None:
        """The number to reach or not to pass."""
        return self.at_most if self.at_least is None else self.at_least

    def margin(self, seen: Spread) -> float | None:
        """Return how far the less favourable quartile is from the bound: 1 is exactly on it."""
        if self.at_least is not None:
            return seen.low / self.at_least
        if self.at_most is not None:
            return self.at_most / seen.high if seen.high > 0 else float("inf")
        return None

    def met(self, seen: Spread) -> bool | None:
        """Whether the less favourable quartile reaches the bound; None without a bound."""
        margin = self.margin(seen)
        return None if margin is None else margin >= 1

    def __str__(self) -> str:
        if self.bound is None:
            return "reported"
        return f"{'≥' if self.at_least is not None else '≤'} {self.bound:g}{_tail(self.unit)}"


def _tail(unit: str) -> str:
    return "" if unit == "×" else f" {unit}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row; `absent` says in one line why it could not be measured here."""

    number: int
    scenario: str
    bars: tuple[Bar, ...]
    absent: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a row came to: the spread of every bar that could be measured."""

    row: Row
    seen: Mapping[str, Spread]

    @property
    def met(self) -> bool | None:
        """Whether every bar with a bound was measured and met; None if there was none to meet."""
        bounded = [bar for bar in self.row.bars if bar.bound is not None]
        if self.row.absent or not bounded:
            return None
        return all(bar.name in self.seen and bar.met(self.seen[bar.name]) for bar in bounded)

    def deciding(self) -> Bar | None:
        """Return the measured bar that is furthest below its bound, or nearest above it."""
        margins = [
            (bar.margin(self.seen[bar.name]), bar) for bar in self.row.bars if bar.name in self.seen
        ]
        bounded = [(margin, bar) for margin, bar in margins if margin is not None]
        if bounded:
            return min(bounded, key=lambda pair: pair[0])[1]
        return margins[0][1] if margins else None


def rows(*numbers: int) -> Sequence[Row]:
    """Return the rows with these numbers, or all.

    Raises `KeyError` for a number that is not in the table.
    """
    return [ROWS[number] for number in numbers] if numbers else list(ROWS.values())


ROWS: Mapping[int, Row] = {
    row.number: row
    for row in (
        Row(
            number=1,
            scenario="one business row + 1 guarded job in a transaction",
            bars=(
                Bar(name="commits/s ÷ delay_on_commit", at_least=1.3),
                Bar(name="p95 ÷ delay_on_commit", at_most=1.0),
                Bar(name="client CPU added per job ÷ plain delay's", at_most=0.5),
            ),
        ),
        Row(
            number=2,
            scenario="10 jobs a transaction",
            bars=(
                Bar(name="one by one, commits/s ÷ delay_on_commit", at_least=1.6),
                Bar(name="in bulk, commits/s ÷ delay_on_commit", at_least=3.3),
            ),
        ),
        Row(
            number=3,
            scenario="100 jobs a transaction",
            bars=(
                Bar(name="one by one, commits/s ÷ delay_on_commit", at_least=1.5),
                Bar(name="in bulk, commits/s ÷ delay_on_commit", at_least=8.0),
                Bar(name="as a group, commits/s ÷ delay_on_commit", at_least=8.0),
            ),
        ),
        Row(
            number=4,
            scenario="relay, 50,000 waiting, Redis",
            bars=(Bar(name="rows/s ÷ django-celery-outbox", at_least=15.0),),
        ),
        Row(
            number=5,
            scenario="relay, RabbitMQ with every message confirmed",
            bars=(Bar(name="rows/s ÷ django-celery-outbox unconfirmed", at_least=4.5),),
        ),
        Row(
            number=6,
            scenario="relay with a million rows",
            bars=(
                Bar(name="1,000,000 waiting, rows/s ÷ own 50,000 rate", at_least=0.8),
                Bar(name="1,000,000 finished, rows/s ÷ own 50,000 rate", at_least=0.9),
                Bar(name="peak memory", at_most=72.0, unit="MiB"),
                Bar(name="peak memory over the 50,000 run's", at_most=3.0, unit="MiB"),
                Bar(name="idle poll, time in SQL", at_most=1.0, unit="ms"),
            ),
        ),
        Row(
            number=7,
            scenario="commit → first line of the body, idle",
            bars=(
                Bar(name="p50 ÷ delay_on_commit", at_most=1.3),
                Bar(name="p95 ÷ delay_on_commit", at_most=1.5),
            ),
        ),
        Row(
            number=8,
            scenario="guarded task with one business INSERT, in a worker",
            bars=(
                Bar(name="tasks/s ÷ plain as Celery comes", at_least=2.2),
                Bar(name="tasks/s ÷ plain, both with connection reuse", at_least=0.8),
            ),
        ),
        Row(
            number=9,
            scenario="claim + finish in process ÷ unprotected",
            bars=(
                Bar(name="two transactions", at_least=0.5),
                Bar(name="one transaction", at_least=0.72),
                Bar(name="skipped duplicate", at_least=1.8),
            ),
        ),
        Row(
            number=10,
            scenario="end to end, 20,000 jobs at 10 a transaction",
            bars=(
                Bar(name="jobs/s ÷ delay_on_commit as it comes", at_least=1.2),
                Bar(name="jobs/s ÷ django-celery-outbox", at_least=1.5),
                Bar(name="producing ÷ delay_on_commit", at_least=2.5),
                Bar(name="no database in the body, jobs/s ÷ delay_on_commit"),
            ),
        ),
        Row(
            number=11,
            scenario="guard with all limits on ÷ guard with key only, 1,000,000 finished rows",
            bars=(
                Bar(name="enqueue", at_least=0.85),
                Bar(name="worker", at_least=0.85),
                Bar(name="a job, asked for and run", at_least=0.85),
            ),
        ),
        Row(
            number=12,
            scenario="growth: the same work beside 10³ and beside ten million finished rows",
            bars=(
                *(Bar(name=f"{work}{GROWTH}", at_most=1.3) for work in GROWING),
                Bar(name="slowest page beside the most, by the clock", at_most=200.0, unit="ms"),
                Bar(name="slowest page beside the most, of processor", at_most=200.0, unit="ms"),
                Bar(name="most queries of one page", at_most=10.0, unit=""),
            ),
        ),
        Row(
            number=13,
            scenario="writes per guarded job",
            bars=(
                Bar(name="statements", unit=""),
                Bar(name="WAL", unit="bytes"),
                Bar(name="dead tuples", unit=""),
                Bar(name="claim p95 beside an idle transaction ÷ clean", at_most=2.0),
            ),
        ),
        Row(
            number=14,
            scenario="soak at 70 % of capacity, a disturbance every minute",
            bars=(
                Bar(name="lost + doubled", at_most=0.0, unit="jobs"),
                Bar(name="disturbances not over within 60 s", at_most=0.0, unit=""),
                *(Bar(name=f"{what}{LEVELS}", at_most=1.25) for what in LEVELLED),
            ),
        ),
    )
}
