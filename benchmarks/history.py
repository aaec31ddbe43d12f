"""A ledger as it is after a long time, written by the server itself: many finished jobs, with
their messages, attempts and effects, and the same small backlog at its end, whatever the size.

Indexes are taken away for the filling and made again after it, which takes a third of the time.
"""

import contextlib
import hashlib
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
from psycopg import sql

Say = Callable[[str], None]
CHUNK = 250_000
PROGRESS_EVERY = 10.0
WAITING, RUNNING = 2_000, 20
TASKS, TENANTS, PRODUCTS, FAULTS = 25, 200, 5_000, 40
RARE_TASK, RARE = "shop.closed", 5
"""A task of which only the oldest jobs are left, and how many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One table and the statement that makes its rows from %(first)s to %(last)s."""

    name: str
    rows: str


# The mix of states and tenants is a guess at a busy shop; the last 70 hours, so that no payload
# is due to be removed. `share` runs from 0 at the oldest job to 1 at the newest.
_NUMBERS = """
FROM (SELECT g AS n, now() - interval '70 hours' * (1 - g::float8 / %(total)s) AS at
      FROM generate_series(%(first)s::bigint, %(last)s::bigint) AS g) AS one
"""
_STATE = """
CASE n %% 200 WHEN 0 THEN 'failed' WHEN 1 THEN 'dead' WHEN 2 THEN 'cancelled'
    WHEN 3 THEN 'expired' ELSE 'succeeded' END
"""
_REASON = """
CASE n %% 200 WHEN 0 THEN 'permanent' WHEN 1 THEN 'budget' WHEN 2 THEN 'cancel'
    WHEN 3 THEN 'expired' ELSE 'done' END
"""
_LANE = "(ARRAY['medium', 'high', 'low', 'medium'])[1 + n %% 4]"
_TASK = f"CASE WHEN n <= {RARE} THEN '{RARE_TASK}' ELSE 'shop.task' || n %% {TASKS} END"
_ERROR = """
'{"type": "ValueError", "message": "no such thing", "state": "failed", "reason": "permanent"}'
"""

MESSAGES = Table(
    name="celery_guard_outboxmessage",
    rows=f"""
INSERT INTO celery_guard_outboxmessage (id, body, envelope, created_at) OVERRIDING SYSTEM VALUE
SELECT n,
    convert_to('[[' || n || ', "customer"], {{}}, {{"callbacks": null, "errbacks": null, '
        '"chain": null, "chord": null}}]', 'UTF8'),
    '{{"content_type": "application/json", "content_encoding": "utf-8", "exchange": "", '
        '"routing_key": "' || {_LANE} || '", "headers": {{"lang": "py", "task": "' || {_TASK} ||
        '", "id": "' || md5(n::text) || '", "eta": null, "expires": null, "retries": 0, '
        '"timelimit": [null, null], "root_id": "' || md5(n::text) || '", "parent_id": null, '
        '"origin": "web", "ignore_result": true}}, "properties": {{"correlation_id": "' ||
        md5(n::text) || '", "reply_to": "", "delivery_mode": 2}}, "declare": ["' || {_LANE} ||
        '"]}}',
    at {_NUMBERS}
""",
)
JOBS = Table(
    name="celery_guard_job",
    rows=f"""
INSERT INTO celery_guard_job (id, public_id, task, key, fingerprint, lane, tenant, coalesce_key,
    state, reason, plain, awaited, created_at, first_due_at, started_at, finished_at, answered_at,
    fence, starts, sends, answers, failures, lost, message_id, result, error)
    OVERRIDING SYSTEM VALUE
SELECT n, md5(n::text)::uuid, {_TASK}, CASE WHEN n %% 10 <> 3 THEN 'order:' || n END,
    left(md5(n::text), 32), {_LANE}, 'tenant' || n %% {TENANTS},
    CASE WHEN n %% 10 = 3 THEN 'product:' || n %% {PRODUCTS} END, {_STATE}, {_REASON}, false,
    n %% 50 = 7, at, at, at, at, CASE WHEN n %% 50 = 7 THEN at END, 1, 1, 1,
    CASE WHEN n %% 50 = 7 THEN -1 ELSE 0 END, CASE WHEN n %% 200 < 2 THEN 1 ELSE 0 END, 0, n,
    CASE WHEN n %% 200 > 3 THEN '{{"value": ' || n || '}}' END,
    CASE WHEN n %% 200 < 2 THEN {_ERROR} END {_NUMBERS}
""",
)
ATTEMPTS = Table(
    name="celery_guard_attempt",
    rows=f"""
INSERT INTO celery_guard_attempt (id, job_id, number, outcome, reason, error, fingerprint, worker,
    started_at, ended_at) OVERRIDING SYSTEM VALUE
SELECT n, n, 1, CASE n %% 200 WHEN 0 THEN 'failed' WHEN 1 THEN 'dead' ELSE 'retry' END,
    CASE n %% 200 WHEN 0 THEN 'permanent' WHEN 1 THEN 'budget' ELSE 'retry' END,
    'ValueError: no such thing', left(md5('fault' || n %% {FAULTS}), 32), 'celery@worker' || n %% 8,
    at, at {_NUMBERS}
""",
)
EFFECTS = Table(
    name="celery_guard_effect",
    rows=f"""
INSERT INTO celery_guard_effect (id, job_id, name, item, state, recovery, provider, provider_key,
    request, version, fence, looks, created_at, sent_at, key_until, settled_at, settled_by, note)
    OVERRIDING SYSTEM VALUE
SELECT n, n, 'charge', '', CASE n %% 2000 WHEN 0 THEN 'manual' WHEN 1 THEN 'unknown'
        WHEN 2 THEN 'sent' WHEN 3 THEN 'rejected' ELSE 'confirmed' END,
    'keyed', 'payments', md5('effect' || n) || md5(n::text), left(md5(n::text), 32), 0, 1, 0,
    at, at, at + interval '24 hours', CASE WHEN n %% 2000 > 2 THEN at END,
    CASE WHEN n %% 2000 > 2 THEN 'the call' ELSE '' END, '' {_NUMBERS}
""",
)
TABLES = (MESSAGES, JOBS, ATTEMPTS, EFFECTS)

# The same at every size: what waits and what runs, newest.
_BACKLOG = f"""
INSERT INTO celery_guard_job (public_id, task, key, fingerprint, lane, tenant, state, reason, plain,
    awaited, created_at, first_due_at, due_at, sent_at, started_at, lease_until, owner, fence,
    starts, sends, failures, lost, message_id)
SELECT gen_random_uuid(), {_TASK}, 'late:' || n, left(md5(n::text), 32), {_LANE},
    'tenant' || n %% {TENANTS}, CASE WHEN n <= {RUNNING} THEN 'running' ELSE 'waiting' END, 'new',
    false, false, now(), now(), now() + interval '1 millisecond' * n,
    CASE WHEN n <= {RUNNING} THEN now() END, CASE WHEN n <= {RUNNING} THEN now() END,
    CASE WHEN n <= {RUNNING} THEN now() + interval '1 day' END,
    CASE WHEN n <= {RUNNING} THEN gen_random_uuid() END, n %% 2, 0, 0, 0, 0, 1 + n %% %(total)s
FROM generate_series(1::bigint, {RUNNING + WAITING}) AS n
"""


def job_name(number: int) -> uuid.UUID:
    """The public id of the finished job with this id."""
    return uuid.UUID(hashlib.md5(str(number).encode()).hexdigest())


@contextlib.contextmanager
def databases(url: str, sizes: Iterable[int], say: Say) -> Iterator[dict[int, str]]:
    """Make a database for each size, like the migrated one at `url`, and remove them at the end."""
    made: dict[int, str] = {}
    address = urlsplit(url)
    template = address.path.strip("/")
    with psycopg.connect(url, dbname="postgres", autocommit=True) as server:
        try:
            for size in sizes:
                made[size] = f"{template}_{size}"
                _create(server, made[size], template)
                fill(urlunsplit(address._replace(path=f"/{made[size]}")), size, say)
            yield made
        finally:
            for name in made.values():
                drop = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)")
                server.execute(drop.format(sql.Identifier(name)))


def _create(server: psycopg.Connection[Any], name: str, template: str) -> None:
    create = sql.SQL("CREATE DATABASE {} TEMPLATE {}")
    server.execute(create.format(sql.Identifier(name), sql.Identifier(template)))


def fill(url: str, done: int, say: Say) -> None:
    """Write `done` finished jobs and all that belongs to them, and the backlog, into empty tables."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET synchronous_commit = off")
        connection.execute("SET maintenance_work_mem = '512MB'")
        for table in TABLES:
            with _without_indexes(connection, table.name, say):
                _rows(connection, table, done, say)
        for table in TABLES:
            _begin_at(connection, table.name)
        connection.execute(_BACKLOG, {"total": done})
        say(f"history of {done:,}: VACUUM ANALYZE")
        for table in TABLES:
            connection.execute(sql.SQL("VACUUM ANALYZE {}").format(sql.Identifier(table.name)))
        connection.execute("CHECKPOINT")


def _rows(connection: psycopg.Connection[Any], table: Table, total: int, say: Say) -> None:
    said = time.monotonic()
    for first in range(1, total + 1, CHUNK):
        last = min(total, first + CHUNK - 1)
        connection.execute(table.rows, {"first": first, "last": last, "total": total})
        if time.monotonic() - said > PROGRESS_EVERY:
            said = time.monotonic()
            say(f"history of {total:,}: {table.name} {last / total:.0%}")


def _begin_at(connection: psycopg.Connection[Any], table: str) -> None:
    statement = "SELECT setval(pg_get_serial_sequence(%s, 'id'), (SELECT max(id) FROM {}))"
    connection.execute(sql.SQL(statement).format(sql.Identifier(table)), [table])


@contextlib.contextmanager
def _without_indexes(connection: psycopg.Connection[Any], table: str, say: Say) -> Iterator[None]:
    constraints = connection.execute(
        "SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint "
        "WHERE conrelid = %s::regclass AND contype IN ('u', 'p')",
        [table],
    ).fetchall()
    indexes = connection.execute(
        "SELECT c.relname, pg_get_indexdef(c.oid) FROM pg_index i JOIN pg_class c "
        "ON c.oid = i.indexrelid WHERE i.indrelid = %s::regclass AND NOT EXISTS "
        "(SELECT FROM pg_constraint WHERE conindid = i.indexrelid AND contype IN ('u', 'p'))",
        [table],
    ).fetchall()
    named = sql.Identifier(table)
    for name, _ in constraints:
        drop = sql.SQL("ALTER TABLE {} DROP CONSTRAINT {} CASCADE")
        connection.execute(drop.format(named, sql.Identifier(name)))
    for name, _ in indexes:
        connection.execute(sql.SQL("DROP INDEX {}").format(sql.Identifier(name)))
    yield
    say(f"{table}: {len(constraints) + len(indexes)} indexes")
    for name, definition in constraints:
        add = sql.SQL("ALTER TABLE {} ADD CONSTRAINT {} {}")
        connection.execute(add.format(named, sql.Identifier(name), sql.SQL(definition)))
    for _, definition in indexes:
        connection.execute(sql.SQL(definition))
