"""Leases: kept up by heartbeats, taken away when they are over.

Both work through a list, so both lock their rows first and pass over what somebody else has
locked: a locked running row is alive.
"""

from __future__ import annotations

import dataclasses
import json
import uuid
from collections.abc import Mapping
from datetime import datetime

from django.db import connections
from django.db.models import F, QuerySet, Value

from celery_guard.faults import fault_point
from celery_guard.jobs import cancelling, following
from celery_guard.jobs.clock import DatabaseNow, in_seconds
from celery_guard.jobs.idling import brief
from celery_guard.jobs.models import Attempt, Job
from celery_guard.jobs.named import NamedJob
from celery_guard.jobs.running import Hold
from celery_guard.jobs.states import Reason, State

BATCH = 200
"""Most leases taken away in one transaction."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """A job whose attempt is gone; ``state`` is what became of the job."""

    job_id: int
    task: str
    state: str
    fence: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """Somebody's running attempt."""

    hold: Hold
    starts: int
    started_at: datetime | None


def beat(using: str, owner: uuid.UUID, fences: Mapping[int, int], lease: float) -> set[int]:
    """Extend the leases of the jobs in ``fences`` (id to fence) by ``lease`` seconds from now.

    Returns the ids that are no longer held under that fence and owner.
    """
    mine = Job.objects.using(using).filter(pk__in=fences, owner=owner, state=State.RUNNING)
    with brief(using):
        free = dict(_unlocked(mine, using).order_by("pk").values_list("pk", "fence"))
        held = [pk for pk, fence in free.items() if fences[pk] == fence]
        mine.filter(pk__in=held).update(lease_until=in_seconds(lease))
    # A row that somebody has locked was passed over, not lost: look at it without a lock.
    seen = dict(mine.exclude(pk__in=held).values_list("pk", "fence"))
    return {pk for pk, fence in fences.items() if pk not in held and seen.get(pk) != fence}


def rescue(using: str, lane: str, *, limit: int) -> list[Lost]:
    """Take away the leases that are over in ``lane``, the oldest first, at most ``BATCH``.

    :param limit: lost leases after which a job is dead as poison.
    """
    # The lane's index range of sent jobs holds the running ones and no ended row.
    over = Job.objects.using(using).filter(
        lane=lane, sent_at__isnull=False, state=State.RUNNING, lease_until__lt=DatabaseNow()
    )
    with brief(using):
        rows = list(_unlocked(over, using).order_by("sent_at").only(*_NEEDED)[:BATCH])
        taken = [lost for row in rows if (lost := _lose(using, row, limit, over))]
        if taken:
            fault_point("run.rescuing", *(lost.job_id for lost in taken))
    return taken


def lose(
    using: str, job: NamedJob, owner: uuid.UUID, *, limit: int, fence: int | None = None
) -> Lost | None:
    """Take the job away from ``owner``, known to be dead or dying; None when it isn't theirs."""
    theirs = job.row(using).filter(owner=owner, state=State.RUNNING)
    if fence is not None:
        theirs = theirs.filter(fence=fence)
    with brief(using):
        row = theirs.select_for_update().only(*_NEEDED).first()
        lost = _lose(using, row, limit, theirs) if row else None
        if lost:
            fault_point("run.losing", job.id)
    return lost


def held_by(using: str, job: NamedJob, owner: uuid.UUID) -> Held | None:
    """The attempt at the job that ``owner`` runs, locked; None when there is none."""
    theirs = job.row(using).filter(owner=owner, state=State.RUNNING)
    row = theirs.select_for_update().only("coalesce_key", "fence", "starts", "started_at").first()
    if row is None:
        return None
    coalesced = row.coalesce_key is not None
    hold = Hold(job_id=job.id, fence=row.fence, owner=owner, using=using, coalesced=coalesced)
    return Held(hold=hold, starts=row.starts, started_at=row.started_at)


_NEEDED = ("id", "task", "coalesce_key", "fence", "lost", "starts", "started_at")


def _lose(using: str, row: Job, limit: int, guard: QuerySet[Job]) -> Lost | None:
    poison = row.lost + 1 >= limit
    changes = _dead() if poison else _waiting()
    # The fence that was read is compared again: where rows can't be locked, a heartbeat or the
    # owner's own move may have come between.
    moved = guard.filter(pk=row.pk, fence=row.fence).update(
        owner=None,
        running_key=None,
        lease_until=None,
        sent_at=None,
        lost=F("lost") + Value(1),
        fence=F("fence") + Value(1),
        **changes,
    )
    if not moved:
        return None
    _remember(using, row, State.DEAD if poison else "lost")
    if poison and row.coalesce_key is not None:
        following.free(using, row.pk)
    state = str(State.CANCELLED if cancelling.honour(using, row.pk) else changes["state"])
    return Lost(job_id=row.pk, task=row.task, state=state, fence=row.fence + 1)


def _waiting() -> dict[str, object]:
    return {"state": State.WAITING, "reason": Reason.LOST, "due_at": DatabaseNow()}


def _dead() -> dict[str, object]:
    error = {
        "type": "WorkerLost",
        "message": "the worker died or fell silent each time it ran this job",
        "state": State.DEAD,
        "reason": Reason.POISON,
    }
    return {
        "state": State.DEAD,
        "reason": Reason.POISON,
        "due_at": None,
        "finished_at": DatabaseNow(),
        "error": json.dumps(error),
    }


def _remember(using: str, row: Job, outcome: str) -> None:
    Attempt.objects.using(using).create(
        job_id=row.pk,
        number=row.starts,
        outcome=outcome,
        reason=Reason.LOST,
        started_at=row.started_at,
        ended_at=DatabaseNow(),
    )


def _unlocked(jobs: QuerySet[Job], using: str) -> QuerySet[Job]:
    skip = connections[using].features.has_select_for_update_skip_locked
    return jobs.select_for_update(skip_locked=skip)
