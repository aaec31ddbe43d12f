"""A worker executes `jobs` messages that wait for it; the first tenth warms it up, uncounted."""

import time
from collections.abc import Mapping
from typing import Any

from benchmarks.contenders.contender import Contender
from benchmarks.processes import Process, running, wait_until

MAIN, HIGHER = "tasks_per_s", True
DEFAULTS = {"jobs": 4000, "concurrency": 2, "kind": "noop"}
ALL_WITHIN = 300.0


def measure(contender: Contender, params: Mapping[str, Any]) -> dict[str, float]:
    """Queue the jobs up, start the worker, watch it finish."""
    from django.db import connection

    contender.setup()
    contender.reset()
    contender.queue_up(params["jobs"], params["kind"])
    with running(*contender.worker_commands(params["concurrency"])) as processes:
        metrics = _watch(contender, params["jobs"], processes)
    connection.close()
    contender.reset()
    return metrics


def _watch(contender: Contender, jobs: int, processes: tuple[Process, ...]) -> dict[str, float]:
    every = contender.poll_every
    wait_until(lambda: contender.unfinished() < 0.9 * jobs, 60, every, *processes)
    left, begun = contender.unfinished(), time.monotonic()
    cpu = sum(one.cpu_seconds() for one in processes)
    wait_until(lambda: contender.unfinished() == 0, ALL_WITHIN, every, *processes)
    took = time.monotonic() - begun
    cpu = sum(one.cpu_seconds() for one in processes) - cpu
    return {
        "tasks_per_s": left / took,
        "worker_cpu_us_per_task": cpu / left * 1e6,
        "peak_rss_mib": max(one.peak_rss_mib() for one in processes),
    }
