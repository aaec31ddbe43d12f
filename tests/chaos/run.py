"""One run: load, deaths, rest, and the count."""

import dataclasses
import random
import tempfile
import time
from collections.abc import Collection
from pathlib import Path

from servers import free_port
from tests.chaos.crew import Crew, start_provider
from tests.chaos.deaths import Death, Rotation
from tests.chaos.pace import Pace, hang_up
from tests.chaos.stage import stage
from tests.chaos.verdict import Verdict, ended_jobs, judge, open_jobs

RANDOM_EVERY = 4
"""One kill in so many comes at a random moment instead of at a named point."""
WARM_UP = 30.0
"""Longest time until the first jobs have ended, in seconds."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to do, for how long at most: ``seconds`` of killing, then ``settle`` of rest."""

    pair: str
    kills: int
    seed: int
    seconds: float
    settle: float = 120.0
    rate: float = 12.0
    points: Collection[str] = ()
    keep: Path | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a run found."""

    kills: int
    seconds: float
    verdict: Verdict
    unreached: tuple[str, ...]


def run(plan: Plan) -> Outcome:
    """Kill as often as asked, or as the time allows; then wait until all is quiet, and count."""
    with tempfile.TemporaryDirectory(prefix="celery-guard-chaos-") as made:
        folder = plan.keep or Path(made)
        folder.mkdir(parents=True, exist_ok=True)
        port = free_port()
        with stage(plan.pair, folder, port):
            provider = start_provider(folder, port, plan.seed)
            crew = Crew(folder, plan.rate)
            try:
                return _Run(plan, crew, folder).go()
            finally:
                crew.end()
                provider.kill()
                hang_up()


class _Run:
    def __init__(self, plan: Plan, crew: Crew, folder: Path) -> None:
        self._plan = plan
        self._pace = Pace(crew)
        self._dice = random.Random(plan.seed)
        self._rotation = Rotation(folder, self._dice, plan.points)
        self._random: list[Death] = []
        self._began = time.monotonic()

    @property
    def _deaths(self) -> list[Death]:
        return [*self._rotation.deaths, *self._random]

    def go(self) -> Outcome:
        self._pace.wait(WARM_UP, lambda: ended_jobs() >= 3)
        deadline = time.monotonic() + self._plan.seconds
        while len(self._deaths) < self._plan.kills and time.monotonic() < deadline:
            self._rotation.turn()
            self._kill_somebody()
            self._pace.what = f"killing: {len(self._deaths)} of {self._plan.kills} kills"
            self._pace.tick()
        self._rotation.rest()
        self._pace.what = f"coming to rest after {len(self._deaths)} kills"
        self._pace.crew.close_till()
        self._pace.wait(self._plan.settle, lambda: open_jobs() == 0)
        # Whoever wrote last is done; now nobody may write any more.
        self._pace.crew.end()
        from tests.chaos.bank import ask

        books = ask("GET", "/books", timeout=30)[1]["orders"]
        unreached = sorted(self._rotation.unreached.keys() - {d.point for d in self._deaths})
        return Outcome(
            kills=len(self._deaths),
            seconds=round(time.monotonic() - self._began, 1),
            verdict=judge(self._deaths, books),
            unreached=tuple(unreached),
        )

    def _kill_somebody(self) -> None:
        if self._plan.points:
            return
        due = len(self._rotation.deaths) // (RANDOM_EVERY - 1)
        if len(self._random) < due and (role := self._pace.crew.kill_at_random(self._dice)):
            self._random.append(Death(point=f"(any moment: {role})", at=time.time()))
