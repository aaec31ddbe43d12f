"""One relay process drains `rows` unsent rows, with `done` finished rows lying about.

Seen from outside: the clock runs from the first message seen at the broker to the last one, or
for `seconds` when the backlog is larger than what is to be drained.
"""

import time
from collections.abc import Mapping
from typing import Any

from benchmarks.contenders.contender import Contender
from benchmarks.place import here
from benchmarks.processes import Process, running, wait_until

MAIN, HIGHER = "rows_per_s", True
DEFAULTS = {"rows": 20_000, "done": 0, "seconds": 120.0}
FIRST_ROW_WITHIN = 300.0


def measure(contender: Contender, params: Mapping[str, Any]) -> dict[str, float]:
    """Fill the outbox, start the relay, watch the broker."""
    contender.setup()
    contender.reset()
    if params["done"]:
        contender.fill_done(params["done"])
    contender.fill(params["rows"])
    command = contender.relay_command()
    assert command is not None, f"{contender.name} has no relay"
    with running(command) as (relay,):
        metrics = _watch(contender, relay, params["rows"], params["seconds"])
    contender.reset()
    return metrics


def _watch(contender: Contender, relay: Process, rows: int, seconds: float) -> dict[str, float]:
    every = 0.003 if here().broker == "redis" else 0.03
    startup = wait_until(contender.queued, FIRST_ROW_WITHIN, every, relay)
    before, cpu, begun = contender.queued(), relay.cpu_seconds(), time.monotonic()
    wait_until(lambda: contender.queued() >= rows, seconds, every, relay, required=False)
    total, took = contender.queued(), time.monotonic() - begun
    cpu = relay.cpu_seconds() - cpu
    sent = max(1, total - before)
    metrics = {
        "rows_per_s": sent / took,
        "relay_cpu_us_per_row": cpu / sent * 1e6,
        "start_to_first_s": startup,
        "rows_sent": float(total),
    }
    if total >= rows:
        metrics["marked_after_s"] = wait_until(lambda: not contender.pending(), 60, 0.02, relay)
    return metrics | {"peak_rss_mib": relay.peak_rss_mib()}
