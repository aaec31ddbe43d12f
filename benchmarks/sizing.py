"""How long jobs wait before a number of slots: a simulation, not a measurement.

``python -m benchmarks.sizing`` prints the tables of docs/operations/sizing.md. Jobs come at random
(Poisson), take random times, and start in the order in which they came, on the first slot that is
free. Nothing is started and no clock is read; the numbers are seeded.

For exponential times the mean wait is known by Erlang's formula C (A. K. Erlang, "Solution of some
problems in the theory of probabilities", 1917), which the tests hold the simulation to.
"""

from __future__ import annotations

import dataclasses
import heapq
import math
import random
from collections.abc import Callable, Iterator

JOBS = 200_000
WARM_UP = 20_000
"""Jobs at the start, before an empty site, that are not counted."""

Draw = Callable[[random.Random], float]
"""Seconds of one body; 1 s on average."""


def exponential(chance: random.Random) -> float:
    """Many short, few long: what Erlang's formula is for."""
    return chance.expovariate(1.0)


def alike(chance: random.Random) -> float:
    """All about the same."""
    return chance.uniform(0.8, 1.2)


def mixed(chance: random.Random) -> float:
    """One in fifty takes 25 s, the others half a second: exports among mails."""
    return 25.0 if chance.random() < 0.02 else 0.5102


BODIES: dict[str, Draw] = {"alike": alike, "exponential": exponential, "mixed": mixed}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """Seconds from due to start."""

    mean: float
    p50: float
    p95: float
    p99: float


def waits(slots: int, use: float, body: Draw, *, seed: int = 1) -> Waits:
    """How long jobs wait before ``slots`` slots of which the share ``use`` works on average."""
    chance = random.Random(seed)
    found = sorted(_each(slots, use, body, chance))
    at = len(found) - 1
    return Waits(
        mean=sum(found) / len(found),
        p50=found[at // 2],
        p95=found[int(at * 0.95)],
        p99=found[int(at * 0.99)],
    )


def _each(slots: int, use: float, body: Draw, chance: random.Random) -> Iterator[float]:
    free = [0.0] * slots
    now = 0.0
    for number in range(JOBS + WARM_UP):
        now += chance.expovariate(slots * use)
        start = max(now, free[0])
        heapq.heapreplace(free, start + body(chance))
        if number >= WARM_UP:
            yield start - now


def erlang_c(slots: int, use: float) -> float:
    """The mean wait in seconds by Erlang's formula C, for bodies of 1 s on average."""
    load = slots * use
    terms = [1.0]
    for number in range(1, slots + 1):
        terms.append(terms[-1] * load / number)
    last = terms[slots] / (1 - use)
    return last / (math.fsum(terms[:slots]) + last) / (slots * (1 - use))


def slots_for(rate: float, seconds: float, objective: float, body: Draw) -> int:
    """The fewest slots with which 99 of 100 jobs start within ``objective`` seconds.

    :param rate: jobs a second.
    :param seconds: of one body, on average.
    """
    load = rate * seconds
    slots = math.floor(load) + 1
    while waits(slots, load / slots, body).p99 * seconds > objective:
        slots += max(1, slots // 20)
    return slots


def main() -> None:
    """Print both tables."""
    print("| slots | in use | bodies | p50 | p95 | p99 |\n| --- | --- | --- | --- | --- | --- |")
    for slots in (4, 16, 64):
        for use in (0.5, 0.75, 0.9, 0.97):
            for name in ("alike", "mixed"):
                found = waits(slots, use, BODIES[name])
                told = " | ".join(f"{wait:.1f}" for wait in (found.p50, found.p95, found.p99))
                print(f"| {slots} | {use:.0%} | {name} | {told} |")
    print("\n| jobs a second | s a job | objective | slots | in use |\n" + "| --- " * 5 + "|")
    for rate, seconds, objective in EXAMPLES:
        slots = slots_for(rate, seconds, objective, mixed)
        print(f"| {rate} | {seconds} | {objective} s | {slots} | {rate * seconds / slots:.0%} |")


EXAMPLES = ((2, 0.5, 10), (20, 0.5, 10), (20, 0.5, 60), (100, 0.5, 10), (100, 0.2, 60), (20, 5, 60))
"""Jobs a second, seconds a job, objective in seconds; one job in fifty takes fifty times as long."""


if __name__ == "__main__":
    main()
