"""The reconciler's look at the ledger stays small, however much history there is."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from celery_guard.settle.reconcile import reconcile

ENDED = 100_000

_MAKE = """
INSERT INTO celery_guard_job (public_id, task, lane, fingerprint, tenant, state, reason, plain,
    awaited, created_at, first_due_at, finished_at, fence, starts, sends, failures, lost)
SELECT gen_random_uuid(), 'shop.task', 'high', '', '', 'succeeded', '', false, false, now(), now(),
    now(), 1, 1, 1, 0, 0
FROM generate_series(1, %s)
"""


def nodes(plan: dict[str, Any]) -> list[dict[str, Any]]:
    """A plan's node and all below it."""
    return [plan, *(node for child in plan.get("Plans", []) for node in nodes(child))]


@pytest.mark.django_db
def test_reconciling_jobs_are_found_without_reading_history() -> None:
    """No statement of the duty reads the ended jobs."""
    if connection.vendor != "postgresql":
        pytest.skip("plans are read as PostgreSQL writes them")
    with connection.cursor() as cursor:
        cursor.execute(_MAKE, [ENDED])
        cursor.execute("ANALYZE celery_guard_job")
    with CaptureQueriesContext(connection) as captured:
        reconcile("default")
    looks = [
        q["sql"] for q in captured if '"celery_guard_job"' in q["sql"] and "SELECT" in q["sql"]
    ]
    assert looks
    for sql in looks:
        with connection.cursor() as cursor:
            cursor.execute(f"EXPLAIN (FORMAT JSON) {sql}")
            ((plans,),) = cursor.fetchall()
        scans = [(n["Node Type"], n.get("Relation Name")) for n in nodes(plans[0]["Plan"])]
        assert ("Seq Scan", "celery_guard_job") not in scans, sql
