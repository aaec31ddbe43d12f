"""Requests, and then the executions of what they asked for, beside `done` finished jobs.

Both take turns in slices, since the price of a limit is small beside what a busy machine adds.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

from benchmarks import tables
from benchmarks.clocks import timed, timed_loop
from benchmarks.contenders.contender import Contender
from benchmarks.scenarios.enqueue import WARM_UP, requests

MAIN, HIGHER = "jobs_per_s", True
DEFAULTS = {"seconds": 0.3, "done": 1_000_000}


def prepare(contender: Contender, params: Mapping[str, Any]) -> Callable[[], dict[str, float]]:
    """Fill the history if nobody has yet, warm the contender up and return the slice."""
    contender.setup()
    if tables.scalar(f"SELECT count(*) FROM {contender.own_tables[0]}") < params["done"]:
        contender.reset()
        contender.fill_done(params["done"])
    request = requests(contender, 1)
    for _ in range(WARM_UP):
        request()
    for execute in contender.released("write"):
        execute()

    def one_slice() -> dict[str, float]:
        asked = timed_loop(request, params["seconds"])
        run = timed(contender.released("write"), math.inf)
        return {
            "jobs_per_s": run.calls / (asked.wall + run.wall),
            "tx_per_s": asked.calls / asked.wall,
            "tasks_per_s": run.calls / run.wall,
            "request_cpu_ms": asked.cpu / asked.calls * 1e3,
            "run_cpu_ms": run.cpu / run.calls * 1e3,
        }

    return one_slice
