"""Dead letters by what they have in common: the task and the error's fingerprint, or the reason."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from datetime import datetime
from typing import Any, cast

from django.db.models import Exists, F, OuterRef, QuerySet, Subquery

from celery_guard.jobs.models import Attempt, Job
from celery_guard.jobs.states import DEAD_LETTERS

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


def groups(using: str) -> list[Group]:
    """The largest groups among the newest, of jobs that still wait for a decision.

    A job counts once, by its latest end, however often it was replayed.
    """
    attempts = Attempt.objects.using(using)
    ended = attempts.filter(
        pk__gt=_least(attempts), outcome__in=DEAD_LETTERS, job__state__in=DEAD_LETTERS
    )
    rows = ended.order_by("-pk").values_list(
        "job__task", "fingerprint", "reason", "error", "ended_at", "job_id"
    )
    found: dict[tuple[str, str], Group] = {}
    seen: set[int] = set()
    for task, fingerprint, reason, error, at, job in rows:
        if job not in seen:
            seen.add(job)
            _add(found, task, fingerprint or reason, error.partition(":")[0] or reason, at, job)
    for task, reason, at, job in _never_tried(using):
        _add(found, task, reason, reason, at, job)
    return sorted(found.values(), key=lambda group: -group.count)[:GROUPS_MOST]


def _never_tried(using: str) -> Iterable[tuple[str, str, datetime, int]]:
    # An unknown task, a message that can't be read: these end before there is an attempt.
    jobs = Job.objects.using(using)
    ended = jobs.dead_letters().filter(
        ~Exists(Attempt.objects.using(using).filter(job=OuterRef("pk"), outcome__in=DEAD_LETTERS)),
        pk__gt=_least(jobs),
        error__isnull=False,
    )
    rows = ended.order_by("-pk").values_list("task", "reason", "finished_at", "pk")
    return cast("Iterable[tuple[str, str, datetime, int]]", rows)


def _least(rows: QuerySet[Any]) -> Subquery:
    return Subquery(rows.order_by("-pk").values(least=F("pk") - LOOKED_AT)[:1])


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
