"""One producer, one relay, one worker: from the first transaction to the last job.

A job of kind `write` is done when its row is seen, one of kind `count` when it has counted.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks import tables
from benchmarks.contenders.contender import Contender
from benchmarks.jobs import counters
from benchmarks.processes import Process, running, wait_until

MAIN, HIGHER = "jobs_per_s", True
DEFAULTS = {"transactions": 2000, "jobs": 10, "concurrency": 2, "kind": "write"}
ALL_WITHIN = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Witness:
    """Counts executed jobs: `glance` cheaply and perhaps too high, `count` exactly."""

    glance: Callable[[], int]
    count: Callable[[], int]
    forget: Callable[[], Any]


def _counted() -> int:
    return int(counters().get("done") or 0)


WITNESSES = {
    "count": Witness(glance=_counted, count=_counted, forget=lambda: counters().flushdb()),
    # The sequence is read without a look at the table, but a rolled-back job moves it too.
    "write": Witness(
        glance=lambda: int(tables.scalar("SELECT last_value FROM shop_effect_id_seq")),
        count=lambda: int(tables.scalar("SELECT count(*) FROM shop_effect")),
        forget=lambda: tables.execute("TRUNCATE shop_effect RESTART IDENTITY"),
    ),
}


def measure(contender: Contender, params: Mapping[str, Any]) -> dict[str, float]:
    """Produce and execute `transactions` × `jobs` jobs."""
    contender.setup()
    contender.reset()
    commands = list(contender.worker_commands(params["concurrency"]))
    commands += [relay] if (relay := contender.relay_command()) else []
    witness = WITNESSES[params["kind"]]
    with running(*commands) as processes:
        _warm_up(contender, params["kind"], witness, processes)
        metrics = _run(contender, params, witness, processes)
    contender.reset()
    return metrics


def _warm_up(
    contender: Contender, kind: str, witness: Witness, processes: tuple[Process, ...]
) -> None:
    from django.db import transaction

    with transaction.atomic():
        contender.enqueue(-1, kind)
    wait_until(witness.count, 60, 0.01, *processes)
    witness.forget()


def _run(
    contender: Contender,
    params: Mapping[str, Any],
    witness: Witness,
    processes: tuple[Process, ...],
) -> dict[str, float]:
    total = params["transactions"] * params["jobs"]
    cpu, begun = sum(one.cpu_seconds() for one in processes), time.monotonic()
    _produce(contender, params)
    produced = time.monotonic()
    wait_until(lambda: witness.glance() >= total, ALL_WITHIN, 0.01, *processes)
    wait_until(lambda: witness.count() >= total, ALL_WITHIN, 0.05, *processes)
    ended = time.monotonic()
    cpu = sum(one.cpu_seconds() for one in processes) - cpu
    time.sleep(0.3)  # long enough for a second execution to show itself
    return {
        "jobs_per_s": total / (ended - begun),
        "wall_s": ended - begun,
        "produce_tx_per_s": params["transactions"] / (produced - begun),
        "after_last_commit_s": ended - produced,
        "relay_worker_cpu_us_per_job": cpu / total * 1e6,
        "executed_twice": float(witness.count() - total),
    }


def _produce(contender: Contender, params: Mapping[str, Any]) -> None:
    from django.db import transaction

    from benchmarks.shop.models import Order

    jobs = params["jobs"]
    for number in range(params["transactions"]):
        for order_id in range(number * jobs, (number + 1) * jobs):
            contender.ask(order_id, params["kind"])
        with transaction.atomic():
            Order.objects.create(customer=number, total=42)
            contender.enqueue_in_tx(range(number * jobs, (number + 1) * jobs), params["kind"])
