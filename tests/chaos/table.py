"""The chaos table: disturbances one after the other under a steady load, and how it came back."""

import dataclasses
import itertools
import statistics
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from tests.chaos.disturbances import DISTURBANCES, NEED_A_CLOCK, Scene, play
from tests.chaos.pace import Pace, hang_up
from tests.chaos.verdict import Verdict, ended_jobs, judge, open_jobs

WARM_UP = 40.0
PATIENCE = 120.0
"""Longest wait until the backlog of a disturbance is gone, in seconds."""
GOOD = 0.99
"""Share of the rate from before that has to be there again, less the spread of the clean run."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Which disturbances, and how long the rate is measured before and after each."""

    pair: str
    names: Sequence[str]
    seed: int
    rate: float
    windows: int = 8
    window: float = 3.0
    keep: Path | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One disturbance: jobs ended a second before and after it, and how it went in between.

    ``recovered_s`` counts from the end of the disturbance until no more jobs were open than at
    most before it; None when that did not come.
    """

    name: str
    lasted_s: float
    recovered_s: float | None
    before: float
    after: float
    spread: float

    @property
    def ratio(self) -> float:
        """The rate after it as a share of the rate before it."""
        return round(self.after / self.before, 3) if self.before else 0.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """All rows, the count from outside, and in words what is wrong."""

    rows: tuple[Row, ...]
    skipped: tuple[str, ...]
    verdict: Verdict
    faults: tuple[str, ...]


def run(plan: Plan) -> Table:
    """Disturb as planned; then wait until all is quiet, and count.

    :raises Missing: when a server of the pair can't be had.
    """
    with play(plan.pair, plan.keep, plan.rate, plan.seed) as (scene, pace):
        return _Run(plan, pace).go(scene)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Phases:
    name: str
    before: tuple[float, float]
    disturbed: tuple[float, float]
    recovered: float | None
    after: tuple[float, float]


class _Run:
    def __init__(self, plan: Plan, pace: Pace) -> None:
        self._plan = plan
        self.pace = pace

    def go(self, scene: Scene) -> Table:
        self.pace.wait(WARM_UP, lambda: ended_jobs() >= 3)
        skipped = NEED_A_CLOCK & set(self._plan.names) if scene.clock is None else set()
        phases = [self._disturb(name, scene) for name in self._plan.names if name not in skipped]
        self.pace.what = "coming to rest"
        self.pace.crew.close_till()
        self.pace.wait(PATIENCE, lambda: open_jobs() == 0)
        # Whoever wrote last is done; now nobody may write any more.
        self.pace.crew.end()
        from tests.chaos.bank import ask

        books = ask("GET", "/books", timeout=30)[1]["orders"]
        rows = tuple(self._row(phase) for phase in phases)
        verdict = judge([], books)
        return Table(
            rows=rows,
            skipped=tuple(sorted(skipped)),
            verdict=verdict,
            faults=(*verdict.faults, *_faults(rows)),
        )

    def _disturb(self, name: str, scene: Scene) -> _Phases:
        self.pace.what = f"before {name}"
        before, most = self._measure()
        self.pace.what = name
        began = time.time()
        DISTURBANCES[name](scene)
        healed = time.time()
        hang_up()
        self.pace.what = f"recovering from {name}"
        quiet = self.pace.wait(PATIENCE, lambda: open_jobs() <= most)
        recovered = round(time.time() - healed, 1) if quiet else None
        self.pace.what = f"after {name}"
        after, _ = self._measure()
        return _Phases(
            name=name,
            before=before,
            disturbed=(began, healed),
            recovered=recovered,
            after=after,
        )

    def _measure(self) -> tuple[tuple[float, float], int]:
        """The time of measuring, and the most jobs that were open at once in it."""
        began, most = time.time(), 0
        for _ in range(self._plan.windows):
            self.pace.hold(self._plan.window)
            most = max(most, open_jobs())
        return (began, time.time()), most

    def _row(self, phases: _Phases) -> Row:
        before, after = self._rates(phases.before), self._rates(phases.after)
        quarters = statistics.quantiles([*before, *after], n=4)
        middle = statistics.median([*before, *after])
        return Row(
            name=phases.name,
            lasted_s=round(phases.disturbed[1] - phases.disturbed[0], 1),
            recovered_s=phases.recovered,
            before=round(statistics.median(before), 2),
            after=round(statistics.median(after), 2),
            spread=round((quarters[2] - quarters[0]) / middle, 3) if middle else 1.0,
        )

    def _rates(self, span: tuple[float, float]) -> list[float]:
        """Jobs ended a second, one number for each window of ``span``."""
        from celery_guard.models import Job

        window = self._plan.window
        bounds = [span[0] + window * number for number in range(self._plan.windows + 1)]
        instants = [datetime.fromtimestamp(at, UTC) for at in bounds]
        pairs = itertools.pairwise(instants)
        ended = Job.objects.filter(state="succeeded")
        return [
            ended.filter(finished_at__gte=first, finished_at__lt=last).count() / window
            for first, last in pairs
        ]


def _faults(rows: Sequence[Row]) -> list[str]:
    spread = next((row.spread for row in rows if row.name == "nothing"), 0.0)
    faults = [
        f"{row.name}: the backlog was still there {PATIENCE:.0f} s later"
        for row in rows
        if row.recovered_s is None
    ]
    faults += [
        f"{row.name}: {row.after}/s after it, {row.before}/s before it"
        for row in rows
        if row.ratio < GOOD - spread
    ]
    return faults
