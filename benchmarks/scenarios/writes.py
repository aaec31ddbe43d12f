"""What one job writes in its life, and what an old transaction does to the claims of many.

One process is web and worker at once, with one INSERT-less job a transaction, so that
PostgreSQL's counters show the toolkit's own writes; only a private server's are undisturbed.
"""

import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import psycopg

from benchmarks import tables
from benchmarks.clocks import percentile
from benchmarks.contenders.contender import Contender
from benchmarks.place import here

MAIN, HIGHER = "wal_bytes_per_job", False
DEFAULTS = {"jobs": 50_000, "sample": 2_000}
SENT = ("\tQuery\t", "\tExecute\t")  # how libpq's trace calls a statement on its way
DEAD = "SELECT sum(n_tup_upd + n_tup_del), sum(n_tup_hot_upd) FROM pg_stat_user_tables"
CHUNK = 500


def measure(contender: Contender, params: Mapping[str, Any]) -> dict[str, float]:
    """Count the writes of `sample` jobs, then time the claims of `jobs` more."""
    contender.setup()
    contender.reset()
    _live(contender, 100)
    counted = _counted(contender, params["sample"])
    clean = _claim_p95(contender, params["sample"])
    with _idle_transaction():
        _claim_p95(contender, params["jobs"] - params["sample"])
        beside = _claim_p95(contender, params["sample"])
    contender.reset()
    return {**counted, "claim_p95_ms": clean * 1e3, "p95_beside_idle_transaction": beside / clean}


def _live(contender: Contender, jobs: int) -> None:
    from django.db import transaction

    for number in range(jobs):
        with transaction.atomic():
            contender.enqueue(time.monotonic_ns() % 10**8 + number)
    for execute in contender.released("noop"):
        execute()


def _counted(contender: Contender, jobs: int) -> dict[str, float]:
    wal = tables.scalar("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn")
    updates, hot = _tuples()
    with _statements() as seen:
        _live(contender, jobs)
        statements = seen()
    wal = float(tables.scalar("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn") - wal)
    now_updates, now_hot = _tuples()
    return {
        "statements_per_job": statements / jobs,
        "wal_bytes_per_job": wal / jobs,
        "dead_tuples_per_job": (now_updates - updates) / jobs,
        "hot_share": (now_hot - hot) / max(1, now_updates - updates),
    }


def _tuples() -> tuple[int, int]:
    tables.flush_statistics()
    ((updates, hot),) = tables.execute(DEAD)
    return int(updates), int(hot)


@contextlib.contextmanager
def _statements() -> Iterator[Callable[[], int]]:
    from django.db import connection

    connection.ensure_connection()
    with tempfile.TemporaryFile("w+") as trace:
        session = connection.connection.pgconn
        session.trace(trace.fileno())
        try:
            yield lambda: sum(any(word in line for word in SENT) for line in _lines(trace))
        finally:
            session.untrace()


def _lines(trace: Any) -> list[str]:
    trace.seek(0)
    return list(trace)


def _claim_p95(contender: Contender, jobs: int) -> float:
    latencies: list[float] = []
    while len(latencies) < jobs:
        for execute in contender.executions(CHUNK):
            begun = time.perf_counter()
            execute()
            latencies.append(time.perf_counter() - begun)
    return percentile(latencies, 0.95)


@contextlib.contextmanager
def _idle_transaction() -> Iterator[None]:
    with psycopg.connect(here().database_url) as session:
        session.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        session.execute("SELECT count(*) FROM celery_guard_job")  # its snapshot is what holds back
        yield
