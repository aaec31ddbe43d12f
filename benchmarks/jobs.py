"""What a job does: every contender's task ends here."""

import time
from functools import lru_cache

import redis

from benchmarks.place import here


@lru_cache(maxsize=1)
def counters() -> redis.Redis:
    """Return the client of the harness's own counters."""
    return redis.Redis.from_url(here().counters_url)


def do_job(order_id: int, kind: str) -> None:
    """Run one job: `noop`, `count` (Redis), `stamp` (its start), `write` (one business row)."""
    match kind:
        case "noop":
            return
        case "count":
            counters().incr("done")
        case "stamp":
            # CLOCK_MONOTONIC is one clock for all processes of a Linux machine.
            counters().rpush("stamps", f"{order_id}:{time.monotonic()!r}")
        case "write":
            from benchmarks.shop.models import Effect

            Effect.objects.create(order=order_id, total=42)
        case _:
            raise ValueError(kind)
