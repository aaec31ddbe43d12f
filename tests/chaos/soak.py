"""A soak: hours at a steady share of what the crew can bear, with a disturbance every minute.

It says whether anything grew, how soon the jobs were as quick again as before each disturbance,
and what was lost or doubled.
"""

import dataclasses
import itertools
import math
import os
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

from tests.chaos.disturbances import DISTURBANCES, NEED_A_CLOCK, Scene, play
from tests.chaos.level import Sample, growth, sample
from tests.chaos.pace import Pace, hang_up
from tests.chaos.verdict import Verdict, ended_jobs, judge, open_jobs

WARM_UP = 40.0
CAPACITY = 30.0
"""Seconds in which as many orders are placed as can be borne, to find out how many that is."""
UNBOUNDED = 1000.0
SHARE = 0.7
"""Part of that at which the soak goes on."""
WINDOW = 10.0
CLEAN = 120.0
"""Seconds without a disturbance, to see how quick the jobs are by themselves."""
REST = 60.0
"""Seconds between the end of a disturbance and the next one: it has to be over by then."""
PATIENCE = 120.0
KEEP = 60.0
"""Seconds for which ended jobs are kept."""
LEVEL = 1.25
"""Growth up to which a figure counts as level: vacuum and purge make it go up and down."""
WATCHED = "tests.chaos.tasks.invoice"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """For how long, and in which order the disturbances come (by ``seed``, every one in turn)."""

    pair: str
    seconds: float
    seed: int
    keep: Path | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Disturbed:
    """One disturbance: the slowest window after it, and the end of the first one as quick as before.

    ``back_s`` is None when there was none, ``worst_p95_s`` when in one window nothing ended.
    """

    name: str
    worst_p95_s: float | None
    back_s: float | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Soak:
    """The whole run. ``growth`` is empty when it was too short to tell."""

    capacity: float
    clean_p95_s: float
    disturbed: tuple[Disturbed, ...]
    growth: Mapping[str, float]
    samples: tuple[Sample, ...]
    verdict: Verdict
    faults: tuple[str, ...]


def run(plan: Plan) -> Soak:
    """Soak as planned; then wait until all is quiet, and count.

    :raises Missing: when a server of the pair can't be had.
    """
    os.environ["CHAOS_KEEP"] = str(KEEP)
    with play(plan.pair, plan.keep, UNBOUNDED, plan.seed) as (scene, pace):
        return _Run(plan, pace, scene).go()


class _Run:
    def __init__(self, plan: Plan, pace: Pace, scene: Scene) -> None:
        self._plan = plan
        self._pace = pace
        self._scene = scene
        self._samples: list[Sample] = []
        self._limit = math.inf

    def go(self) -> Soak:
        until = time.monotonic() + self._plan.seconds
        self._pace.wait(WARM_UP, lambda: ended_jobs() >= 3)
        capacity = self._capacity()
        self._pace.crew.place_at(SHARE * capacity)
        clean = self._clean()
        names = self._names()
        disturbed = []
        while time.monotonic() < until:
            disturbed.append(self._disturb(next(names)))
        return self._count(capacity, clean, tuple(disturbed))

    def _capacity(self) -> float:
        """Orders a second that the crew bears: the till waits while too many are open."""
        from tests.project.shop.models import Order

        self._pace.what = "finding the capacity"
        before, began = Order.objects.count(), time.monotonic()
        self._pace.hold(CAPACITY)
        placed, took = Order.objects.count() - before, time.monotonic() - began
        return round(placed / took, 2)

    def _clean(self) -> float:
        self._pace.what = "clean"
        # Until the jam of the capacity is gone.
        self._pace.hold(WINDOW)
        seen = [p95 for _, p95 in self._windows(CLEAN) if p95 is not None]
        self._limit = max(seen, default=math.inf)
        return self._limit

    def _names(self) -> Iterator[str]:
        skipped = {"nothing"} | (NEED_A_CLOCK if self._scene.clock is None else set())
        names = [name for name in DISTURBANCES if name not in skipped]
        self._scene.dice.shuffle(names)
        return itertools.cycle(names)

    def _disturb(self, name: str) -> Disturbed:
        self._pace.what = name
        DISTURBANCES[name](self._scene)
        hang_up()
        self._pace.what = f"after {name}"
        back, worst = None, 0.0
        for ended, p95 in self._windows(REST):
            if back is None and p95 is not None and p95 <= self._limit:
                back = ended
            worst = math.inf if p95 is None else max(worst, p95)
        self._samples.append(sample(self._pace.crew))
        return Disturbed(
            name=name,
            worst_p95_s=worst if math.isfinite(worst) else None,
            back_s=back,
        )

    def _windows(self, seconds: float) -> Iterator[tuple[float, float | None]]:
        """Each window's end, in seconds from now on, and the p95 of what ended in it."""
        began = time.time()
        for number in range(int(seconds / WINDOW)):
            self._pace.hold(began + WINDOW * (number + 1) - time.time())
            first = began + WINDOW * number
            yield WINDOW * (number + 1), _p95(first, first + WINDOW)

    def _count(self, capacity: float, clean: float, disturbed: tuple[Disturbed, ...]) -> Soak:
        self._pace.what = "coming to rest"
        self._pace.crew.close_till()
        self._pace.wait(PATIENCE, lambda: open_jobs() == 0)
        # Whoever wrote last is done; now nobody may write any more.
        self._pace.crew.end()
        from tests.chaos.bank import ask

        books = ask("GET", "/books", timeout=30)[1]["orders"]
        verdict, grown = judge([], books), growth(self._samples)
        return Soak(
            capacity=capacity,
            clean_p95_s=clean,
            disturbed=disturbed,
            growth=grown,
            samples=tuple(self._samples),
            verdict=verdict,
            faults=(*verdict.faults, *faults(disturbed, grown)),
        )


def _p95(first: float, last: float) -> float | None:
    """Seconds from request to end of the quickest kind of job; None when none ended."""
    from celery_guard.models import Job

    ended = Job.objects.filter(
        task=WATCHED,
        state="succeeded",
        finished_at__gte=datetime.fromtimestamp(first, UTC),
        finished_at__lt=datetime.fromtimestamp(last, UTC),
    )
    took = sorted(
        (finished - created).total_seconds()
        for finished, created in ended.values_list("finished_at", "created_at")
    )
    return round(took[math.ceil(0.95 * len(took)) - 1], 3) if took else None


def faults(disturbed: tuple[Disturbed, ...], grown: Mapping[str, float]) -> Iterator[str]:
    """Say what did not come back and what did not stay level."""
    for one in disturbed:
        if one.back_s is None:
            yield f"{one.name}: not as quick again within {REST:.0f} s"
    for name, factor in grown.items():
        if factor > LEVEL:
            yield f"{name} grew {factor}×"
