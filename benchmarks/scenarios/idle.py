"""What an idle relay asks of the database, with `done` finished rows lying about.

Counted by PostgreSQL: the time its sessions were active, divided by the polls of that while. What a
relay does once, when it is started, is over by then, on a busy machine too.
"""

import time
from collections.abc import Mapping
from typing import Any

from benchmarks import tables
from benchmarks.contenders.contender import Contender
from benchmarks.processes import running, wait_until

MAIN, HIGHER = "sql_ms_per_poll", False
DEFAULTS = {"done": 0, "seconds": 8.0}
SETTLING = 4.0
ACTIVE = "SELECT active_time FROM pg_stat_database WHERE datname = current_database()"


def measure(contender: Contender, params: Mapping[str, Any]) -> dict[str, float]:
    """Watch an idle relay for `seconds`."""
    contender.setup()
    contender.reset()
    if params["done"]:
        contender.fill_done(params["done"])
    command = contender.relay_command()
    assert command is not None, f"{contender.name} has no relay"
    with running(command) as (relay,):
        time.sleep(SETTLING)
        wait_until(contender.settled, 60, 0.1, relay)
        before, cpu = _active(), relay.cpu_seconds()
        time.sleep(params["seconds"])
        relay.check()
        active, cpu = _active() - before, relay.cpu_seconds() - cpu
    contender.reset()
    polls = params["seconds"] / contender.poll_seconds()
    return {
        "sql_ms_per_poll": active / polls,
        "sql_ms_per_s": active / params["seconds"],
        "relay_cpu_ms_per_s": cpu * 1e3 / params["seconds"],
    }


def _active() -> float:
    tables.flush_statistics()
    return float(tables.scalar(ACTIVE))
