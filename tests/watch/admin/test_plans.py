"""With hundreds of thousands of jobs, every page and measurement goes by an index."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from celery_guard.jobs.clock import database_time
from celery_guard.watch.measuring import measure
from tests.watch.admin.pages import ATTEMPTS, DASHBOARD, EFFECTS, JOBS, MESSAGES

JOBS_MADE = 200_000

# 95 % have ended, as in a ledger that is weeks old; the last 10,000 wait, a few run.
_MAKE = """
INSERT INTO celery_guard_job (public_id, task, key, fingerprint, lane, tenant, state, reason, plain,
    awaited, created_at, first_due_at, due_at, sent_at, finished_at, owner, fence, starts, sends,
    failures, lost)
SELECT gen_random_uuid(), 'shop.task' || n %% 5, 'key:' || n, '', (ARRAY['high', 'low'])[1 + n %% 2],
    '', CASE WHEN n <= 190000 THEN 'succeeded' WHEN n <= 190020 THEN 'running' ELSE 'waiting' END,
    '', false, false, now(), now(), CASE WHEN n > 190000 THEN now() END,
    CASE WHEN n > 190000 AND n <= 190020 THEN now() END, CASE WHEN n <= 190000 THEN now() END,
    CASE WHEN n > 190000 AND n <= 190020 THEN gen_random_uuid() END, 0, 0, 0, 0, 0
FROM generate_series(1, %s) AS n
"""


# Far more than a page shows of each kind that waits for a person, and failures without end.
HISTORY_MADE = 60_000
_MAKE_HISTORY = (
    """
WITH numbered AS (SELECT id, row_number() OVER (ORDER BY id) AS n FROM celery_guard_job)
INSERT INTO celery_guard_attempt (job_id, number, outcome, reason, error, fingerprint, worker,
    started_at, ended_at)
SELECT id, 1, CASE n %% 3 WHEN 0 THEN 'failed' ELSE 'retry' END, 'permanent', 'ValueError: x',
    md5((n %% 9)::text), 'w', now(), now() FROM numbered LIMIT %s
""",
    """
WITH numbered AS (SELECT id, row_number() OVER (ORDER BY id) AS n FROM celery_guard_job)
INSERT INTO celery_guard_effect (job_id, name, item, state, recovery, provider, provider_key,
    request, version, fence, looks, created_at, sent_at, settled_by, note)
SELECT id, 'charge', '', CASE n %% 2 WHEN 0 THEN 'confirmed'
    ELSE (ARRAY['manual', 'unknown', 'sent'])[1 + n / 2 %% 3] END, 'manual', 'p', md5(n::text), '', 0,
    1, 0, now(), now(), '', '' FROM numbered LIMIT %s
""",
)


@pytest.fixture
def _large_history(_large_ledger: None) -> None:
    with connection.cursor() as cursor:
        for statement in _MAKE_HISTORY:
            cursor.execute(statement, [HISTORY_MADE])
        cursor.execute(
            "UPDATE celery_guard_job SET state = 'failed', error = '{}' WHERE id %% 50 = 0"
            " AND state = 'succeeded'",
            [],
        )
        for table in ("job", "attempt", "effect"):
            cursor.execute(f"ANALYZE celery_guard_{table}")


@pytest.fixture
def _large_ledger(db: None) -> None:
    if connection.vendor != "postgresql":
        pytest.skip("plans are read as PostgreSQL writes them")
    with connection.cursor() as cursor:
        cursor.execute(_MAKE, [JOBS_MADE])
        cursor.execute("ANALYZE celery_guard_job")


_LARGE = re.compile("celery_guard_(job|attempt|effect|outboxmessage)")


def plans(captured: CaptureQueriesContext, how: str = "ANALYZE, ") -> Iterator[dict[str, object]]:
    """The plan of every query on large tables that was captured, with what it really read."""
    for query in captured.captured_queries:
        if re.match(r"\s*\(?(SELECT|WITH)", query["sql"]) and _LARGE.search(query["sql"]):
            with connection.cursor() as cursor:
                # Captured statements are whole: their parameters are in them.
                cursor.execute(f"EXPLAIN ({how}FORMAT JSON) {query['sql']}")
                (found,) = cursor.fetchone()
            plan = found if isinstance(found, list) else json.loads(found)
            yield {"sql": query["sql"], **plan[0]["Plan"]}


def nodes(plan: dict[str, object]) -> Iterator[dict[str, object]]:
    """A plan's node and all below it."""
    yield plan
    for child in plan.get("Plans", []):  # type: ignore[attr-defined]
        yield from nodes(child)


def check(captured: CaptureQueriesContext) -> None:
    """No sequential scan of the jobs, and no node that reads a large part of them."""
    found = list(plans(captured))
    assert found
    for plan in found:
        for node in nodes(plan):
            scanned = (node["Node Type"], node.get("Relation Name"))
            assert scanned != ("Seq Scan", "celery_guard_job"), plan["sql"]
            read = int(node["Actual Rows"]) + int(node.get("Rows Removed by Filter", 0))  # type: ignore[call-overload]
            assert read * int(node["Actual Loops"]) <= 15_000, plan["sql"]  # type: ignore[call-overload]


@pytest.mark.bar
@pytest.mark.usefixtures("_large_ledger")
def test_lists_and_measurements_read_a_bounded_part(viewer: Client) -> None:
    """Plain list, every filter that has an index, search, deep pages, and the snapshot's counts."""
    middle = JOBS_MADE // 2
    queries = [
        {},
        {"lane": "high"},
        {"task": "shop.task3"},
        {"state": "waiting"},
        {"state": "running"},
        {"state": "succeeded"},
        {"older": middle},
        {"newer": middle},
        {"q": "key:77"},
        {"q": "77"},
    ]
    for query in queries:
        with CaptureQueriesContext(connection) as captured:
            assert viewer.get(JOBS, query).status_code == 200
        check(captured)
    with CaptureQueriesContext(connection) as captured:
        measure("default", "high", 16, database_time("default"))
    check(captured)


COST_MOST = 25_000.0
"""In PostgreSQL's own units. From 100,000 on it compiles a query, which takes longer than any page may."""
READ_MOST = 25_000
"""Rows of one node: the newest failures against all attempts, where those are few. Far more wait here."""


@pytest.mark.bar
@pytest.mark.usefixtures("_large_history")
def test_the_dashboard_reads_no_more_than_it_may_show(admin_client: Client) -> None:
    """Whatever failed and whatever waits for an answer: by an index, without preparing for more."""
    for path in (DASHBOARD, ATTEMPTS, EFFECTS, MESSAGES):
        with CaptureQueriesContext(connection) as captured:
            assert admin_client.get(path).status_code == 200
        for plan in plans(captured):
            assert float(plan["Total Cost"]) < COST_MOST, plan["sql"]  # type: ignore[arg-type]
            for node in nodes(plan):
                scanned = str(node.get("Relation Name"))
                assert (node["Node Type"], scanned[:13]) != ("Seq Scan", "celery_guard_"), plan[
                    "sql"
                ]
                assert int(node["Actual Rows"]) * int(node["Actual Loops"]) <= READ_MOST, plan[
                    "sql"
                ]  # type: ignore[call-overload]


@pytest.fixture
def _told_of_millions(_large_history: None) -> None:
    # What a planner knows of a table's size it reads from here; the rest is as it is.
    with connection.cursor() as cursor:
        cursor.execute("SELECT usesuper FROM pg_user WHERE usename = current_user")
        if cursor.fetchone() != (True,):
            pytest.skip("only a superuser may change what PostgreSQL knows of a table")
        cursor.execute(
            "UPDATE pg_class SET reltuples = reltuples * 50 WHERE relname ~"
            " '^celery_guard_(job|attempt|effect)'"
        )


@pytest.mark.bar
@pytest.mark.usefixtures("_told_of_millions")
def test_the_dashboard_costs_as_little_among_ten_million_jobs(admin_client: Client) -> None:
    """A bound that the planner can't see, or a sort of all that waits, looks dear to it then."""
    for path in (DASHBOARD, ATTEMPTS, EFFECTS, MESSAGES):
        with CaptureQueriesContext(connection) as captured:
            assert admin_client.get(path).status_code == 200
        for plan in plans(captured, how=""):
            assert float(plan["Total Cost"]) < COST_MOST, plan["sql"]  # type: ignore[arg-type]
