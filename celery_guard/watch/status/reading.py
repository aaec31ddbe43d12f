"""A job as its owner may see it: one query, and one more while it waits."""

from __future__ import annotations

import dataclasses
import uuid
from datetime import datetime

from django.db import connections
from django.db.models import QuerySet

from celery_guard.jobs.clock import DatabaseNow
from celery_guard.jobs.models import Job
from celery_guard.jobs.states import TERMINAL, State
from celery_guard.relay.broker_app import ledgers, load_app
from celery_guard.watch.lanes import LaneView, read_lanes
from celery_guard.watch.status.waiting import ask_after, predicted_wait

_HIDDEN = ("result", "error", "survivor__result", "survivor__error")
_HOPS = 8
"""Jobs that stand for one another in a row and are looked up one by one."""
_MOST = 1000
"""Jobs in such a row; more would be a circle."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A job at ``now``: the one that was asked for, and the one that stands for it.

    They differ where another job does the work: ``job`` was superseded, or repeats it under another
    task id. ``wait`` is the predicted time to its start and ``ask_after`` when to look again, both
    in seconds; None where that can't be told, or nothing will change.
    """

    using: str
    job: Job
    standing: Job
    now: datetime
    wait: float | None
    ask_after: int | None

    @property
    def over(self) -> bool:
        """Whether the job has ended."""
        return self.standing.state in TERMINAL


def read(public_id: uuid.UUID, using: str | None = None) -> Reading | None:
    """The job called ``public_id``, in the ledger on ``using`` or in any; None for none."""
    for alias in [using] if using else ledgers(load_app()):
        job = _jobs(alias).filter(public_id=public_id).annotate(read_at=DatabaseNow()).first()
        if job is not None:
            return _reading(alias, job, job.read_at)
    return None


def _reading(using: str, job: Job, now: datetime) -> Reading:
    standing = _standing_for(using, job)
    lane = _lane(using, standing.lane) if standing.state == State.WAITING else None
    wait = predicted_wait(standing, lane, now)
    return Reading(
        using=using,
        job=job,
        standing=standing,
        now=now,
        wait=wait,
        ask_after=ask_after(standing, wait, now),
    )


def _standing_for(using: str, job: Job) -> Job:
    for _ in range(_HOPS):
        if job.survivor is None:
            # Its own end, also where the one that stood for it has been purged.
            break
        job = job.survivor if job.survivor.survivor_id is None else _again(using, job.survivor)
    else:
        job = _jobs(using).filter(pk=_last_of_line(using, job.pk)).first() or job
    return job


# A key that is asked for again and again while it waits makes a long line of folded requests.
_LINE = """WITH RECURSIVE line (id, survivor_id, hops) AS (
    SELECT id, survivor_id, 0 FROM celery_guard_job WHERE id = %s
    UNION ALL
    SELECT job.id, job.survivor_id, line.hops + 1
    FROM line INNER JOIN celery_guard_job AS job ON job.id = line.survivor_id
    WHERE line.hops < %s
)
SELECT id FROM line ORDER BY hops DESC LIMIT 1"""


def _last_of_line(using: str, job_id: int) -> int:
    with connections[using].cursor() as cursor:
        cursor.execute(_LINE, [job_id, _MOST])
        return int(cursor.fetchone()[0])


def _again(using: str, job: Job) -> Job:
    return _jobs(using).filter(pk=job.pk).first() or job


def _jobs(using: str) -> QuerySet[Job]:
    return Job.objects.using(using).select_related("survivor").defer(*_HIDDEN)


def _lane(using: str, name: str) -> LaneView | None:
    return next((lane for lane in read_lanes(using) if lane.name == name), None)
