"""Enqueueing, and claiming and finishing, in this process, beside `done` finished jobs."""

from collections.abc import Mapping
from typing import Any

from benchmarks.clocks import timed, timed_loop
from benchmarks.contenders.contender import Contender
from benchmarks.scenarios.enqueue import WARM_UP, requests

MAIN, HIGHER = "tx_per_s", True
DEFAULTS = {"done": 1_000, "seconds": 3.0}


def measure(contender: Contender, params: Mapping[str, Any]) -> dict[str, float]:
    """Fill the history, then work beside it."""
    contender.setup()
    contender.reset()
    contender.fill_done(params["done"])
    request = requests(contender, 1)
    for _ in range(WARM_UP):
        request()
    enqueue = timed_loop(request, params["seconds"]).metrics("tx_per_s")
    for execute in contender.executions(WARM_UP):
        execute()
    claims = timed(contender.executions(2000), params["seconds"]).metrics("tasks_per_s")
    contender.reset()
    return {
        **{f"claim_{name}": value for name, value in claims.items()},
        **enqueue,
        "tasks_per_s": claims["tasks_per_s"],
    }
