"""Idempotent execution in this process, without a broker: one job after the other.

With `duplicates=1` every call is a second delivery of one finished job. A slice's jobs are made
before its clock starts.
"""

from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.clocks import timed, timed_loop
from benchmarks.contenders.contender import Contender

MAIN, HIGHER = "tasks_per_s", True
DEFAULTS = {"seconds": 0.15, "duplicates": 0, "prepared": 400}
WARM_UP = 20


def prepare(contender: Contender, params: Mapping[str, Any]) -> Callable[[], dict[str, float]]:
    """Warm the contender up and return the slice."""
    contender.setup()
    contender.reset()
    for execute in contender.executions(WARM_UP):
        execute()
    if params["duplicates"]:
        again = contender.duplicate()
        return lambda: timed_loop(again, params["seconds"]).metrics("tasks_per_s")
    return lambda: timed(contender.executions(params["prepared"]), params["seconds"]).metrics(
        "tasks_per_s"
    )
