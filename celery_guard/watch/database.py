"""How near the databases of the ledgers are to the most connections that they take, and this process' own
pools to theirs.

The server is asked by the snapshot and counts everybody's connections, not only this site's. A pool is
Django's own for PostgreSQL, and every process has one: what is told of it is true of the process that
answers the scrape.
"""

from __future__ import annotations

import collections
import logging
from collections.abc import Callable, Iterator
from datetime import datetime

from django.db import DatabaseError, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric as Family

from celery_guard.enqueue.admission.pressure import pool_stats
from celery_guard.events import emit
from celery_guard.relay.broker_app import ledgers, load_app
from celery_guard.watch import beside
from celery_guard.watch.beside import Numbers, Topic
from celery_guard.watch.bounded import bounded
from celery_guard.watch.metrics import Metric

TIME_MOST = 1.0
"""Longest that counting may hold up the snapshot, in seconds (PostgreSQL)."""
OTHER = "other"

HELD, MOST = "db_connections", "db_limit"
DATABASE = Topic(name="db_at", names=(HELD, MOST))

CONNECTIONS = Metric(
    name="db_connections",
    help="Connections to the database's server by what they do, everybody's; absent while not known.",
    labels=("alias", "state"),
)
LIMIT = Metric(
    name="db_connections_limit",
    help="The most connections that the server takes, less those kept for administrators.",
    labels=("alias",),
)
POOL_CONNECTIONS = Metric(
    name="db_pool_connections",
    help="Connections in Django's pool of the process that answers, in use and free; absent without a pool.",
    labels=("alias", "state"),
)
POOL_LIMIT = Metric(
    name="db_pool_connections_limit",
    help="The most connections that such a pool may open.",
    labels=("alias",),
)
POOL_WAITING = Metric(
    name="db_pool_waiting",
    help="Requests that wait for a connection of such a pool.",
    labels=("alias",),
)
DATABASE_METRICS = (CONNECTIONS, LIMIT)
POOL_METRICS = (POOL_CONNECTIONS, POOL_LIMIT, POOL_WAITING)

_STATES = {
    "active": "active",
    "idle": "idle",
    "idle in transaction": "idle_in_transaction",
    "idle in transaction (aborted)": "idle_in_transaction",
}


def sample(using: str, now: datetime) -> None:
    """Count the connections of the server behind ``using``, and keep what was found as of ``now``."""
    count = _COUNTS.get(connections[using].vendor)
    found: Numbers = {}
    if count is not None:
        try:
            with bounded(using, TIME_MOST):
                found = count(connections[using])
        except DatabaseError as error:
            emit("watch.connections_not_counted", logging.INFO, using=using, error=str(error))
    beside.keep(using, DATABASE, found, now)


def _postgresql(connection: BaseDatabaseWrapper) -> Numbers:
    states: collections.Counter[str] = collections.Counter()
    with connection.cursor() as cursor:
        # Of strangers' connections a plain user sees that they are there, and no state.
        cursor.execute(
            "SELECT state, count(*) FROM pg_stat_activity"
            " WHERE backend_type = 'client backend' GROUP BY state"
        )
        for state, number in cursor.fetchall():
            states[_STATES.get(state, OTHER)] += number
        cursor.execute(
            "SELECT current_setting('max_connections')::int"
            " - current_setting('superuser_reserved_connections')::int"
            # From PostgreSQL 16 on.
            " - coalesce(current_setting('reserved_connections', true)::int, 0)"
        )
        return {HELD: states, MOST: {"": cursor.fetchone()[0]}}


def _mysql(connection: BaseDatabaseWrapper) -> Numbers:
    with connection.cursor() as cursor:
        cursor.execute(
            "SHOW GLOBAL STATUS WHERE Variable_name IN ('Threads_connected', 'Threads_running')"
        )
        told = {name.lower(): int(value) for name, value in cursor.fetchall()}
        cursor.execute("SELECT @@GLOBAL.max_connections")
        most = int(cursor.fetchone()[0])
    running = min(told["threads_running"], told["threads_connected"])
    return {
        HELD: {"active": running, "idle": told["threads_connected"] - running},
        MOST: {"": most},
    }


_COUNTS: dict[str, Callable[[BaseDatabaseWrapper], Numbers]] = {
    "postgresql": _postgresql,
    "mysql": _mysql,
}


def pools() -> Iterator[Family]:
    """This process' pools of the ledgers' databases, as they are now."""
    held, most, waiting = (
        GaugeMetricFamily(metric.full_name, metric.help, labels=metric.labels)
        for metric in POOL_METRICS
    )
    for alias in ledgers(load_app()):
        if (stats := pool_stats(alias)) is not None:
            free = stats["pool_available"]
            held.add_metric([alias, "in_use"], stats["pool_size"] - free)
            held.add_metric([alias, "free"], free)
            most.add_metric([alias], stats["pool_max"])
            waiting.add_metric([alias], stats.get("requests_waiting", 0))
    yield from (held, most, waiting)
