"""A queue and its workers, second by second: what a scaling policy makes of a load.

``python -m benchmarks.scaling`` prints the table of docs/operations/scaling.md. Nothing is started
and no clock is read: the loads are drawn from seeded random numbers.
"""

from __future__ import annotations

import dataclasses
import math
import random
import statistics
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from celery_guard.watch.rates import Flow, Service, advance, learn, smooth
from celery_guard.watch.scaling import Advice, Load, Past, Policy, advise

SECONDS = 4 * 3600
BOOT = 45
"""Seconds from advice to a working worker."""
EVERY = 5
"""Seconds between two snapshots."""
SETTLE = 300
"""Seconds at the start, with an empty site, that are not judged."""
START = datetime(2026, 1, 1, tzinfo=UTC)

Decide = Callable[[Load, Past], Advice]
SEEDS = (1, 2, 3)


def noisy(second: int, chance: random.Random) -> float:
    """Twenty jobs a second, give or take nine."""
    return max(0.0, chance.gauss(20, 9))


def diurnal(second: int, chance: random.Random) -> float:
    """A wave between eight and thirty-two, two hours long."""
    return 20 + 12 * math.sin(2 * math.pi * second / 7200)


def burst(second: int, chance: random.Random) -> float:
    """Seven times as much for five minutes."""
    return 140.0 if 6000 <= second < 6300 else 20.0


TRACES = {"noisy": noisy, "diurnal": diurnal, "burst": burst, "outage": diurnal}
OUTAGE = range(6000, 6600)
"""When nothing ends in the trace of that name: a provider hangs."""


def policy(**changes: object) -> Policy:
    """One job a second and worker, an objective of a minute, at most eighty workers."""
    values: dict[str, object] = {"objective": 60.0, "concurrency": 1, "least": 2, "most": 80}
    calm = {"headroom": 0.2, "tolerance": 0.1, "burst": 1}
    return Policy(**{**values, **calm, **changes})  # type: ignore[arg-type]


def ours(wanted: Policy) -> Decide:
    """The project's own function."""
    return lambda load, past: advise(load, wanted, past)


def textbook(per_worker: float, step: int, *, least: int = 2, most: int = 80) -> Decide:
    """Arrivals over jobs per worker, rounded up, and a step while the objective is missed."""

    def decide(load: Load, past: Past) -> Advice:
        found = math.ceil(load.arrivals / per_worker) + (step if load.age > 60 else 0)
        workers = min(max(found, least), most)
        return Advice(workers=workers, needed=workers, uncapped=found, limited_by="none")

    return decide


POLICIES: dict[str, Decide] = {
    "textbook": textbook(1.0, 0),
    "textbook, burst step 5": textbook(1.0, 5),
    "ours": ours(policy()),
    "ours, database for 30 workers": ours(policy(database=30)),
}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """``late`` is the part of the time over the objective, in per cent; ages in seconds."""

    late: float
    age_p99: float
    reversals: int
    workers: float
    most: int
    last: int


class Site:
    """One lane and its workers."""

    def __init__(self, trace: str, decide: Decide, seed: int) -> None:
        self.trace, self.decide, self.chance = trace, decide, random.Random(seed)
        self.queue: deque[int] = deque()
        self.workers, self.booting = 2, deque[tuple[int, int]]()
        self.came = self.went = self.most = self.advised = self.direction = self.reversals = 0
        self.served = self.busy = 0.0
        self.running, self.in_use = 0, 0.0
        self.ages: list[int] = []
        self.staff: list[int] = []
        self.flow, self.service = Flow(at=START, available=0, floor=False, gone=0), Service()
        self.needed: deque[tuple[int, int]] = deque()
        self.advised = self.workers

    def run(self) -> Outcome:
        """Four hours."""
        for second in range(SECONDS):
            self._work(second)
            if second and second % EVERY == 0:
                self._decide(second)
        judged = sorted(self.ages[SETTLE:])
        return Outcome(
            late=100 * sum(age > 60 for age in judged) / len(judged),
            age_p99=judged[int(0.99 * len(judged))],
            reversals=self.reversals,
            workers=statistics.mean(self.staff[SETTLE:]),
            most=self.most,
            last=self.advised,
        )

    def _work(self, second: int) -> None:
        rate = TRACES[self.trace](second, self.chance)
        come = max(0, round(self.chance.gauss(rate, math.sqrt(max(rate, 1e-9)))))
        self.queue.extend([second] * come)
        while self.booting and self.booting[0][0] <= second:
            self.workers += self.booting.popleft()[1]
        hangs = self.trace == "outage" and second in OUTAGE
        self.running = self.workers if hangs else min(self.workers, len(self.queue))
        self.busy += self.running
        self.served = 0.0 if hangs else self.served % 1 + self.workers
        for _ in range(min(int(self.served), len(self.queue))):
            self.queue.popleft()
            self.went += 1
        self.ages.append(second - self.queue[0] if self.queue else 0)
        self.staff.append(self.workers)

    def _decide(self, second: int) -> None:
        now = START + timedelta(seconds=second)
        told = Flow(at=now, available=len(self.queue), floor=False, gone=self.went)
        went = self.went - self.flow.gone
        self.flow = advance(self.flow, told)
        self.in_use = smooth(self.in_use, self.running, EVERY)
        self.service, self.busy = learn(self.service, busy=self.busy, went=went), 0.0
        load = Load(
            arrivals=max(0.0, self.flow.arrivals),
            service_rate=self.service.rate or 1.0,
            backlog=len(self.queue),
            age=self.ages[-1],
            busy=self.in_use,
        )
        while self.needed and self.needed[0][0] <= second - 300:
            self.needed.popleft()
        most = max((workers for _, workers in self.needed), default=0)
        advice = self.decide(load, Past(advised=self.advised, needed=most))
        self.needed.append((second, advice.needed))
        self._apply(second, advice.workers)

    def _apply(self, second: int, wanted: int) -> None:
        change, self.advised = wanted - self.advised, wanted
        self.most = max(self.most, wanted)
        if not change:
            return
        direction = 1 if change > 0 else -1
        self.reversals += self.direction == -direction
        self.direction = direction
        if change > 0:
            self.booting.append((second + BOOT, change))
            return
        while change < 0 and self.booting:
            when, coming = self.booting.pop()
            if coming + change > 0:
                self.booting.append((when, coming + change))
            change = min(0, change + coming)
        self.workers += change


def long_jobs(number: int, *, ends: int) -> dict[int, int]:
    """What is advised second by second for so many jobs that run until then, and no other."""
    flow, service = Flow(at=START, available=number, floor=False, gone=0), Service()
    advised, in_use, needed, found = number, float(number), deque[int](maxlen=300 // EVERY), {}
    for second in range(EVERY, 2 * ends + EVERY, EVERY):
        running = number if second < ends else 0
        told = Flow(
            at=START + timedelta(seconds=second),
            available=running,
            floor=False,
            gone=number - running,
        )
        service = learn(service, busy=number * EVERY, went=told.gone - flow.gone)
        flow, in_use = advance(flow, told), smooth(in_use, running, EVERY)
        load = Load(
            arrivals=max(0.0, flow.arrivals),
            service_rate=service.rate or 1.0,
            backlog=0,
            age=0,
            busy=in_use,
        )
        advice = advise(load, policy(), Past(advised=advised, needed=max(needed, default=0)))
        needed.append(advice.needed)
        found[second] = advised = advice.workers
    return found


def outcomes(trace: str, decide: Decide) -> list[Outcome]:
    """One for each seed."""
    return [Site(trace, decide, seed).run() for seed in SEEDS]


def main() -> None:
    """Print the table."""
    print("| load | policy | % of the time late | p99 age, s | reversals | workers |")
    print("| --- | --- | --- | --- | --- | --- |")
    for trace in TRACES:
        for name, decide in POLICIES.items():
            found = outcomes(trace, decide)
            cells = (
                f"{statistics.mean(getattr(o, field) for o in found):.{digits}f}"
                for field, digits in (("late", 2), ("age_p99", 0), ("reversals", 0), ("workers", 1))
            )
            print(f"| {trace} | {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
