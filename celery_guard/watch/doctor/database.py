"""The databases that hold ledgers: there, migrated, in time, with room for everybody."""

from __future__ import annotations

import time
from collections.abc import Iterator

from django.db import Error as DatabaseError
from django.db import connections
from django.db.migrations.loader import MigrationLoader

from celery_guard.jobs.clock import database_time
from celery_guard.outbox import functions
from celery_guard.relay.presence import live_workers
from celery_guard.watch.doctor.finding import Finding, fault, ok, warning

SKEW_MOST = 2.0
"""Seconds that two clocks may differ."""
IDLE_MOST = 60
"""Seconds that a session may sit in an open transaction."""
SESSIONS_PER_SLOT = 2
"""A worker process keeps one connection for the body, one for its heartbeat."""
SESSIONS_PER_WORKER = 3
"""Its relay's loop, listener and upkeep."""

_IDLE = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND state LIKE 'idle in transaction%%'
  AND xact_start < clock_timestamp() - make_interval(secs => %s)
"""
_ROOM = (
    "SELECT current_setting('max_connections')::int"
    " - current_setting('superuser_reserved_connections')::int"
)


def answers(alias: str) -> Finding | None:
    """The fault of a database that can't be asked; None when it can."""
    try:
        database_time(alias)
    except DatabaseError as error:
        return fault(
            f"database {alias}",
            f"it can't be asked: {error}".strip(),
            f'Correct DATABASES["{alias}"], or start the server.',
        )
    return None


def is_migrated(alias: str) -> Finding | None:
    """The fault of a ledger whose tables are not those of this release; None when they are."""
    loader = MigrationLoader(connections[alias])
    ours = sorted(node for node in loader.graph.nodes if node[0] == "celery_guard")
    missing = [name for app, name in ours if (app, name) not in (loader.applied_migrations or {})]
    if not missing:
        return _functions(alias)
    return fault(
        f"database {alias}",
        f"migrations are not applied: {', '.join(missing)}",
        f"python manage.py migrate celery_guard --database {alias}",
    )


def _functions(alias: str) -> Finding | None:
    if connections[alias].vendor != "postgresql":
        return None
    names = [f"celery_guard_{name}" for name in functions.CURRENT]
    with connections[alias].cursor() as cursor:
        cursor.execute(
            "SELECT name FROM unnest(%s::text[]) AS name WHERE to_regproc(name) IS NULL", [names]
        )
        missing = [name for (name,) in cursor.fetchall()]
    if not missing:
        return None
    return fault(
        f"database {alias}",
        f"functions are missing: {', '.join(missing)}",
        "Restore the whole schema (a dump of single tables leaves functions out), or correct the "
        "search_path: every enqueue and every release fails without them.",
    )


def look_at_database(alias: str) -> Iterator[Finding]:
    """Clock, sessions and room of a database that answers and is migrated."""
    yield _clock(alias)
    if connections[alias].vendor == "postgresql":
        yield from _postgres(alias)


def _clock(alias: str) -> Finding:
    # Display only: the database's clock decides, whatever this machine's says.
    skew = time.time() - database_time(alias).timestamp()
    if abs(skew) <= SKEW_MOST:
        return ok(f"database {alias}", "it answers, is migrated, and agrees on the time")
    return warning(
        f"database {alias}",
        f"this machine's clock is {skew:+.1f} s off the database's: times shown here are wrong",
        "Run a time service (chrony, systemd-timesyncd) on both.",
    )


def _postgres(alias: str) -> Iterator[Finding]:
    with connections[alias].cursor() as cursor:
        cursor.execute(_IDLE, [IDLE_MOST])
        (idle,) = cursor.fetchone()
        cursor.execute(_ROOM)
        (room,) = cursor.fetchone()
    if idle:
        yield warning(
            f"database {alias}",
            f"sessions that sit idle in a transaction for over {IDLE_MOST} s: {idle}; they hold "
            "back vacuum, and every claim gets slower",
            f"ALTER ROLE … SET idle_in_transaction_session_timeout = '{IDLE_MOST}s';",
        )
    workers = live_workers(alias)
    wanted = sum(SESSIONS_PER_SLOT * w.slots + SESSIONS_PER_WORKER for w in workers)
    if wanted > room:
        yield fault(
            f"database {alias}",
            f"the live workers ({len(workers)}) may open {wanted} connections, the server gives "
            f"{room}",
            f"Raise max_connections above {wanted}, use fewer slots, or put pgbouncer between.",
        )
