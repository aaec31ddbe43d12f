"""How a job stands, and the ends of jobs that nobody runs."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Sequence
from typing import Any

from django.db import connections
from django.db.models import F, QuerySet

from celery_guard.jobs import direct, following, unfolding
from celery_guard.jobs.clock import NOW_SQL, DatabaseNow
from celery_guard.jobs.models import Job
from celery_guard.jobs.named import NamedJob
from celery_guard.jobs.states import Reason, State


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How a job stands, for whoever could not claim it or lost sight of it."""

    state: str
    reason: str
    sent: bool
    expired: bool
    owner: uuid.UUID | None
    fence: int
    result: str | None
    error: str | None
    answered: bool
    tenant: str


_LOOK = """SELECT state, reason, sent_at IS NOT NULL, coalesce(expires_at <= {now}, false), owner,
       fence, result, error, answered_at IS NOT NULL, public_id, tenant
FROM celery_guard_job WHERE id = %s"""
_LOOKS = {vendor: _LOOK.format(now=now) for vendor, now in NOW_SQL.items()}


def look(using: str, job: NamedJob) -> Standing | None:
    """How the job stands; None when it has been purged, or its number is another job's now."""
    row = _look(using, job.id)
    if row is None:
        return None
    state, reason, sent, expired, owner, fence, result, error, answered, public_id, tenant = row
    if job.public_id not in (None, _uuid(public_id)):
        return None
    return Standing(
        state=state,
        reason=reason,
        sent=bool(sent),
        expired=bool(expired),
        owner=_uuid(owner),
        fence=fence,
        result=result,
        error=error,
        answered=bool(answered),
        tenant=tenant,
    )


def _look(using: str, job_id: int) -> Sequence[Any] | None:
    # By hand: every doubled message asks, and the ORM took longer than the database.
    connection = connections[using]
    statement = _LOOKS[connection.vendor]
    if connection.vendor == "postgresql":
        return direct.returned(connection, statement, (job_id,))
    with connection.cursor() as cursor:
        cursor.execute(statement, (job_id,))
        row: Sequence[Any] | None = cursor.fetchone()
    return row


def look_through(using: str, echo_id: int) -> Standing | None:
    """How the job stands that the echo repeats, or that took its place; None when it is purged."""
    echo = Job.objects.using(using).get(pk=echo_id)
    survivor = following.answering(using, echo)
    if survivor.pk == echo.pk:
        return None
    if survivor.pk != echo.survivor_id:
        # The links in between are purged sooner than an echo may have to wait.
        Job.objects.using(using).filter(pk=echo_id).update(survivor=survivor)
    return look(using, NamedJob(survivor.pk))


def _uuid(value: uuid.UUID | str | None) -> uuid.UUID | None:
    # Only PostgreSQL's driver gives one back.
    return uuid.UUID(value) if isinstance(value, str) else value


def expire(using: str, job: NamedJob, error: str) -> bool:
    """End a waiting job that is past its expiry by the database's clock."""
    late = _waiting(using, job).filter(expires_at__lte=DatabaseNow())
    return _end_waiting(using, job, late, State.EXPIRED, Reason.EXPIRED, error)


def park(using: str, job: NamedJob, *, reason: str, error: str) -> bool:
    """End a waiting job whose message no worker can run, as failed; kept for replay."""
    return _end_waiting(using, job, _waiting(using, job), State.FAILED, reason, error)


def cancel(using: str, job: NamedJob) -> bool:
    """End a waiting job as cancelled."""
    return unfolding.cancel(using, _waiting(using, job)) == 1


def unsend(using: str, job: NamedJob) -> bool:
    """Have a waiting job sent again: its message is known to have died."""
    return _waiting(using, job).filter(sent_at__isnull=False).update(sent_at=None) == 1


def _waiting(using: str, job: NamedJob) -> QuerySet[Job]:
    return job.row(using).filter(state=State.WAITING)


def _end_waiting(
    using: str, job: NamedJob, rows: QuerySet[Job], state: str, reason: str, error: str
) -> bool:
    now = DatabaseNow()
    moved = rows.update(
        state=state, reason=reason, sent_at=None, due_at=None, finished_at=now, error=error
    )
    if moved:
        # It may have been sent, and others of its coalesce key waited for it.
        following.free(using, job.id)
    return moved == 1


def answered(using: str, job_id: int, fence: int) -> bool:
    """Note that whoever waits has been told the end that the attempt ``fence`` brought."""
    job = Job.objects.using(using).filter(pk=job_id, fence=fence, answered_at=None)
    # Turned negative, a job that was asked after leaves the sweep's ranges; of all others the
    # index stays as it is.
    told = job.filter(finished_at__isnull=False)
    return told.update(answered_at=DatabaseNow(), answers=-F("answers")) == 1
