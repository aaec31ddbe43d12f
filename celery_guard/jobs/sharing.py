"""Whose turn it is: the tenants that wait in a lane, what they hold, and the release by shares.

A lane's head is the work of whoever came first. Where tenants share a lane that would be whoever
came with most, so their heads are found one by one instead, by an index over tenants.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from django.db import connections
from django.db.models import Count, Min, Q, QuerySet

from celery_guard.jobs.clock import DatabaseNow
from celery_guard.jobs.following import Key
from celery_guard.jobs.models import Job
from celery_guard.jobs.states import State

NOBODY = ""
"""The jobs without a tenant, which share like one."""
HEAD = 1000
"""How far into a lane jobs without a tenant are looked for: they have no index of their own."""
FAR = 100_000
"""The same where its head is full of tenants' jobs, now and then."""

SPARE = 50
"""How many more than its share of a tenant's jobs are looked at: others may have locked some."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Where in a lane's line jobs of some kind are: ``most`` due jobs, from ``since`` on."""

    since: datetime | None = None
    most: int = HEAD
    spare: int = SPARE
    """How many more than are wanted PostgreSQL's statement looks at."""


HEAD_ONLY = Stretch()


def waiting_tenants(using: str, lane: str, *, after: str, most: int) -> list[str]:
    """Tenants with a due, unsent job in ``lane``: at most ``most``, in order, from past ``after``."""
    if connections[using].vendor == "postgresql":
        return _loosely(using, lane, after, most)
    # One statement over the lane: tenants that wait elsewhere would cost a look-up each.
    named = due(using, lane).exclude(tenant=NOBODY).filter(tenant__gt=after).order_by("tenant")
    return list(named.values_list("tenant", flat=True).distinct()[:most])


# A loose index scan: one look-up a tenant, however many jobs each of them has.
_TENANTS = """
WITH RECURSIVE tenants(tenant) AS (
    SELECT min(tenant) FROM celery_guard_job
    WHERE tenant > %(after)s AND tenant <> '' AND due_at IS NOT NULL
    UNION ALL
    SELECT (SELECT min(job.tenant) FROM celery_guard_job AS job
            WHERE job.tenant > tenants.tenant AND job.tenant <> '' AND job.due_at IS NOT NULL)
    FROM tenants WHERE tenants.tenant IS NOT NULL
)
SELECT tenant FROM tenants
WHERE tenant IS NOT NULL AND EXISTS (
    SELECT 1 FROM celery_guard_job AS job
    WHERE job.tenant = tenants.tenant AND job.tenant <> '' AND job.lane = %(lane)s
      AND job.sent_at IS NULL AND job.due_at <= clock_timestamp()
)
LIMIT %(most)s
"""


def _loosely(using: str, lane: str, after: str, most: int) -> list[str]:
    with connections[using].cursor() as cursor:
        cursor.execute(_TENANTS, {"after": after, "lane": lane, "most": most})
        return [tenant for (tenant,) in cursor.fetchall()]


def has_nobodys(using: str, lane: str, stretch: Stretch) -> bool | None:
    """Whether a job without a tenant is due in ``stretch``; None where the line goes on behind it."""
    found = list(along(using, lane, stretch).values_list("tenant", flat=True)[: stretch.most])
    if NOBODY in found:
        return True
    return None if len(found) == stretch.most else False


def find_nobodys(using: str, lane: str) -> Stretch | None:
    """Where the first due jobs without a tenant are, among the lane's :data:`FAR` oldest."""
    return find(using, lane, Q(tenant=NOBODY))


def find(using: str, lane: str, wanted: Q) -> Stretch | None:
    """Where the first due jobs that are ``wanted`` are, among the lane's :data:`FAR` oldest."""
    line = along(using, lane, HEAD_ONLY).values("due_at", "tenant", "task", "plain")
    first = line[:FAR].aggregate(first=Min("due_at", filter=wanted))["first"]
    if first is None:
        return None
    near = Stretch(since=first, most=HEAD_ONLY.most)
    there = along(using, lane, near).values("due_at", "tenant", "task", "plain")[: near.most]
    # One bulk may have given thousands of jobs the same due time, in no order.
    if there.aggregate(first=Min("due_at", filter=wanted))["first"] is None:
        return Stretch(since=first, most=FAR)
    return near


def along(using: str, lane: str, stretch: Stretch) -> QuerySet[Job]:
    """The due jobs of ``lane`` from where ``stretch`` begins, oldest first; all of them."""
    # sent_at is NULL in every row; naming it lets the planner read the index in order.
    line = due(using, lane).order_by("sent_at", "due_at")
    return line if stretch.since is None else line.filter(due_at__gte=stretch.since)


def held_by_tenant(using: str, lane: str) -> dict[str, int]:
    """How many jobs of each tenant are with the broker or run, in ``lane``."""
    return dict(held(using, lane).order_by().values_list("tenant").annotate(Count("pk")))


def held(using: str, lane: str) -> QuerySet[Job]:
    """The jobs of ``lane`` that are with the broker or run.

    One that waits for the outcome of an effect uses no worker, and may wait for a person.
    """
    sent = Job.objects.using(using).filter(lane=lane, sent_at__isnull=False)
    return sent.exclude(state=State.RECONCILING)


def due(using: str, lane: str) -> QuerySet[Job]:
    """The due, unsent jobs of ``lane``."""
    return Job.objects.using(using).filter(lane=lane, sent_at=None, due_at__lte=DatabaseNow())


def keys_at_the_head(
    using: str, lane: str, tenants: Iterable[str] | None, nobodys: Stretch
) -> set[Key]:
    """The coalesce keys of the :data:`HEAD` oldest due jobs of ``lane``, or of each of ``tenants``."""
    if tenants is None:
        lines = [along(using, lane, HEAD_ONLY)]
    else:
        lines = [
            due(using, lane).filter(tenant=tenant).order_by("due_at")
            if tenant != NOBODY
            else along(using, lane, nobodys)
            for tenant in tenants
        ]
    heads = (line.values_list("task", "coalesce_key")[:HEAD] for line in lines)
    return {(task, key) for head in heads for task, key in head if key is not None}


def as_arrays(shares: Mapping[str, int], nobodys: Stretch) -> dict[str, Any]:
    """``shares`` as the arguments of release_shares.sql."""
    named = {tenant: share for tenant, share in shares.items() if tenant != NOBODY}
    return {
        "tenants": list(named),
        "shares": list(named.values()),
        "nobody": shares.get(NOBODY, 0),
        "since": nobodys.since or "-infinity",
        "head": max(nobodys.most, nobodys.spare),
        "spare": nobodys.spare,
    }
