"""Dead letters by what they have in common: the task and the error's fingerprint, or the reason."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from celery_guard.jobs.models import Attempt

LOOKED_AT = 5_000
"""The newest attempts, and the newest jobs, that are looked through; no index leads to dead letters."""
GROUPS_MOST = 10


@dataclasses.dataclass(slots=True, kw_only=True)
class Group:
    """Jobs that failed alike. ``error`` is the exception's class: messages may quote what people
    wrote. ``mark`` is what they have in common: the error's fingerprint, else the reason."""

    task: str
    error: str
    mark: str
    count: int
    first: datetime
    last: datetime
    newest_job: int


# The newest rows first, then what they are: a bound that comes out of a subquery is no bound to a
# planner, who expects a third of the table behind it and prepares for that.
_NEWEST = """
SELECT a.id, a.job_id, j.task, a.fingerprint, a.reason, a.error, a.ended_at
FROM (SELECT id, job_id, outcome, fingerprint, reason, error, ended_at
      FROM celery_guard_attempt ORDER BY id DESC LIMIT %(most)s) AS a
JOIN celery_guard_job AS j ON j.id = a.job_id
WHERE a.outcome IN ('failed', 'dead') AND j.state IN ('failed', 'dead')
UNION ALL
SELECT j.id, j.id, j.task, '', j.reason, '', j.finished_at
FROM (SELECT id, task, state, reason, finished_at, error IS NOT NULL AS kept
      FROM celery_guard_job ORDER BY id DESC LIMIT %(most)s) AS j
WHERE j.kept AND j.state IN ('failed', 'dead') AND NOT EXISTS (
    SELECT 1 FROM celery_guard_attempt AS a
    WHERE a.job_id = j.id AND a.outcome IN ('failed', 'dead'))
"""


def groups(using: str) -> list[Group]:
    """The largest groups among the newest, of jobs that still wait for a decision.

    A job counts once, by its latest end, however often it was replayed. One that never had an
    attempt (an unknown task, a message that can't be read) goes by its reason.
    """
    found: dict[tuple[str, str], Group] = {}
    seen: set[int] = set()
    # Attempts, and jobs without any in the form of one.
    rows: Any = Attempt.objects.using(using).raw(_NEWEST, {"most": LOOKED_AT})
    for row in sorted(rows, key=lambda row: -row.pk):
        if row.job_id not in seen:
            seen.add(row.job_id)
            error = row.error.partition(":")[0] or row.reason
            _add(found, row.task, row.fingerprint or row.reason, error, row.ended_at, row.job_id)
    return sorted(found.values(), key=lambda group: -group.count)[:GROUPS_MOST]


def _add(
    found: dict[tuple[str, str], Group], task: str, mark: str, error: str, at: datetime, job: int
) -> None:
    group = found.get((task, mark))
    if group is None:
        found[task, mark] = Group(
            task=task, error=error, mark=mark, count=1, first=at, last=at, newest_job=job
        )
    else:
        group.count, group.newest_job = group.count + 1, max(group.newest_job, job)
        group.first, group.last = min(group.first, at), max(group.last, at)


def as_json(using: str, found: Iterable[Group]) -> list[dict[str, object]]:
    """The groups of one ledger as plain values."""
    return [
        {
            **dataclasses.asdict(group),
            "using": using,
            "first": group.first.isoformat(),
            "last": group.last.isoformat(),
        }
        for group in found
    ]
