"""Idle system, relay and worker running: from COMMIT to the first line of the body.

The clock starts when COMMIT is about to be sent, so that the commit itself and what a contender
does in its on_commit hooks count for all alike.
"""

import random
import time
from collections.abc import Mapping
from typing import Any

from benchmarks.clocks import percentile
from benchmarks.contenders.contender import Contender
from benchmarks.jobs import counters
from benchmarks.processes import Process, running, wait_until

MAIN, HIGHER = "p50_ms", False
DEFAULTS = {"samples": 25, "concurrency": 2}
WARM_UP = 3


def measure(contender: Contender, params: Mapping[str, Any]) -> dict[str, float]:
    """Take `samples` samples at random moments."""
    contender.setup()
    contender.reset()
    commands = list(contender.worker_commands(params["concurrency"]))
    commands += [relay] if (relay := contender.relay_command()) else []
    with running(*commands) as processes:
        took = [
            _sample(contender, number, processes) for number in range(params["samples"] + WARM_UP)
        ]
    contender.reset()
    latencies = [one * 1e3 for one in took[WARM_UP:]]
    return {
        "p50_ms": percentile(latencies, 0.5),
        "p95_ms": percentile(latencies, 0.95),
        "min_ms": min(latencies),
        "max_ms": max(latencies),
    }


def _sample(contender: Contender, number: int, processes: tuple[Process, ...]) -> float:
    from django.db import transaction

    from benchmarks.shop.models import Order

    time.sleep(random.uniform(0.3, 1.3))  # over a second, so that no poll is in step with us
    with transaction.atomic():
        Order.objects.create(customer=number, total=42)
        contender.enqueue(number, "stamp")
        committing = time.monotonic()
    wait_until(lambda: counters().llen("stamps"), 60, 0.004, *processes)
    _, _, started = str(counters().lpop("stamps"), "ascii").partition(":")  # type: ignore[arg-type]
    return float(started) - committing
