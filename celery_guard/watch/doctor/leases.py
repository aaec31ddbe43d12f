"""Attempts whose lease ended long ago and that no rescue has taken: a session has their rows locked."""

from __future__ import annotations

from collections.abc import Iterator

from django.db import connections

from celery_guard.jobs.clock import in_seconds
from celery_guard.jobs.models import Job
from celery_guard.jobs.states import State
from celery_guard.relay.lead import find_lanes
from celery_guard.watch.doctor.finding import Finding, warning

OVER = 60.0
"""Seconds after its lease at which an attempt should have been taken away by any sweep."""
SHOWN = 100

# Whoever has locked a row stands in it. Of other roles' sessions only a superuser sees the number.
_HOLDERS = """
SELECT DISTINCT holder.pid FROM celery_guard_job AS job
  JOIN pg_stat_activity AS holder ON holder.backend_xid = job.xmax
 WHERE job.id = ANY(%s) ORDER BY holder.pid
"""


def look_at_leases(using: str) -> Iterator[Finding]:
    """Jobs that a lost worker may still have locked: every rescue passes them over as alive."""
    late = Job.objects.using(using).filter(
        lane__in=find_lanes(using),
        sent_at__isnull=False,
        state=State.RUNNING,
        lease_until__lt=in_seconds(-OVER),
    )
    ids = list(late.order_by("pk").values_list("pk", flat=True)[:SHOWN])
    if not ids:
        return
    holders = _holders(using, ids)
    by = f"; locked by the sessions {', '.join(map(str, holders))}" if holders else ""
    yield warning(
        "leases",
        f"running jobs whose lease ended over {OVER:.0f} s ago: {len(ids)}, first {ids[0]}{by}",
        _hint(holders),
    )


def _holders(using: str, ids: list[int]) -> list[int]:
    if connections[using].vendor != "postgresql":
        return []
    with connections[using].cursor() as cursor:
        cursor.execute(_HOLDERS, [ids])
        return [pid for (pid,) in cursor.fetchall()]


def _hint(holders: list[int]) -> str:
    if not holders:
        return "See the upkeep above; if the rescue is done, end the session that has them locked."
    ends = " ".join(f"SELECT pg_terminate_backend({pid});" for pid in holders)
    return f"If their worker is gone: {ends}"
