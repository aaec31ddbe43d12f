"""How each row of the table is measured: number -> a function from a bench to a reading."""

from collections.abc import Callable, Mapping

from benchmarks.bench import Bench, Reading
from benchmarks.rows import (
    claims,
    end_to_end,
    enqueue,
    growth,
    latency,
    price,
    relay,
    soak,
    worker,
    writes,
)

MEASURES: Mapping[int, Callable[[Bench], Reading]] = {
    1: enqueue.one_job,
    2: enqueue.ten_jobs,
    3: enqueue.hundred_jobs,
    4: relay.redis,
    5: relay.rabbitmq,
    6: relay.million,
    7: latency.idle_system,
    8: worker.business_insert,
    9: claims.in_process,
    10: end_to_end.twenty_thousand,
    11: price.everything_on,
    12: growth.beside_history,
    13: writes.per_job,
    14: soak.under_faults,
}
