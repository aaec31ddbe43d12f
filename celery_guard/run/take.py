"""From a message to a claim."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable
from typing import Any, NoReturn

from billiard.exceptions import SoftTimeLimitExceeded
from celery.exceptions import Ignore
from django.db import Error as DatabaseFault
from django.db import connections

from celery_guard.enqueue.adopt import adopt
from celery_guard.enqueue.declaration import Guarded
from celery_guard.enqueue.rollout.mode import choose
from celery_guard.events import emit
from celery_guard.jobs import claiming, running, standing
from celery_guard.jobs.adding import public_id_of
from celery_guard.jobs.models import Job
from celery_guard.jobs.named import JOB_HEADER, NamedJob, named_in
from celery_guard.jobs.states import Reason, State
from celery_guard.run.classify import underlying
from celery_guard.run.held import step_aside_if_held
from celery_guard.run.job import lease_of
from celery_guard.run.owner import owner
from celery_guard.run.patience import patiently
from celery_guard.run.worker import discard

live: set[tuple[int, int]] = set()
"""Job and fence of every attempt that this process knows to be its own."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Inline:
    """How an attempt outside a worker takes its job, and for how many seconds it holds it.

    No heartbeat keeps it up, and its end is told to nobody but the ledger.
    """

    claim: Callable[[NamedJob], claiming.Claim | None]
    lease: float


Taken = claiming.Claim | standing.Standing | None


def inline_of(request: Any) -> Inline | None:
    """How the running attempt is one outside a worker; None in a worker."""
    found = request.get("guard_inline")
    return found if isinstance(found, Inline) else None


def job_named_by(request: Any) -> NamedJob | None:
    """The job that a message names in its header; None for a message without one."""
    return named_in(request.get(JOB_HEADER) or (request.headers or {}).get(JOB_HEADER))


def take(task: Guarded, told: NamedJob | None) -> tuple[NamedJob, Taken] | None:
    """The job of the current message, and the claim on it if it could be claimed.

    Else how it stands, where the database has told that too.

    None for a message that is to run plainly: it names no job, has none, and the task's mode makes
    none of it. Waits in place while the database is away, for as long as that lasts.
    """
    using, request = task.guard.alias, task.request
    eager = request.is_eager
    job = told if told is not None else _adopted(task, using)
    if job is None:
        return None
    inline = inline_of(request)
    by_message = told is not None and not eager and inline is None
    sees_holds = by_message and claiming.sees_holds(using)
    if not (eager or sees_holds):
        _step_aside_if_held(task, job, using)
    if inline is not None:
        claim = _claim(using, job, lambda: inline.claim(job))
        if claim is None:
            raise Ignore("a worker has it, or its turn has not come")
        return job, claim
    if by_message:
        return job, _claim(using, job, lambda: _by_message(task, job))
    return job, _claim(using, job, lambda: _directly(task, job, early=eager))


def _adopted(task: Guarded, using: str) -> NamedJob | None:
    try:
        return patiently(using, lambda: _adopt(task, using))[0]
    except SoftTimeLimitExceeded as error:
        # Adopted or not, the message is still there or the row is.
        raise Ignore("timed out before the body began") from error


def _adopt(task: Guarded, using: str) -> NamedJob | None:
    request = task.request
    mode = choose(task, request.args or (), request.kwargs or {})
    if mode.guards:
        return NamedJob(adopt(task, using, mode))
    # Delivered once more after it was adopted under another mode: then its job has it.
    public_id = public_id_of(request.id)
    jobs = Job.objects.using(using).filter(public_id=public_id)
    job_id = None if request.is_eager else jobs.values_list("pk", flat=True).first()
    return None if job_id is None else NamedJob(job_id, public_id)


def _step_aside_if_held(task: Guarded, job: NamedJob, using: str) -> None:
    try:
        patiently(using, lambda: step_aside_if_held(task, job))
    except SoftTimeLimitExceeded as error:
        # Put back or not: the row waits, and if it still looks sent, the sweep sends it again.
        discard(connections[using])
        raise Ignore("timed out before the body began") from error


def _by_message(task: Guarded, job: NamedJob) -> Taken:
    # A server that crashes and forgets the claim has forgotten all that an atomic body did, too. A
    # coalesced one may still be at work then, and must not meet the next run of its key.
    lazily = task.guard.atomic and task.guard.coalesce is None
    using, lease = task.guard.alias, lease_of(task)
    return claiming.claim_or_look(using, job, owner=owner(), lease=lease, lazily=lazily)


def _directly(task: Guarded, job: NamedJob, *, early: bool) -> claiming.Claim | None:
    using, lease = task.guard.alias, lease_of(task)
    return claiming.claim_directly(using, job, owner=owner(), lease=lease, early=early)


def _claim(using: str, job: NamedJob, attempt: Callable[[], Taken]) -> Taken:
    try:
        claim, doubtful = patiently(using, attempt)
    except (DatabaseFault, SoftTimeLimitExceeded, SystemExit, KeyboardInterrupt) as caught:
        _give_up(using, job, underlying(caught))
    if doubtful and not isinstance(claim, claiming.Claim):
        _give_back_unseen(using, job)
        return None
    return claim


def _give_up(using: str, job: NamedJob, error: BaseException) -> NoReturn:
    if isinstance(error, DatabaseFault):
        # A table or column that is missing: the job is still owed, so Celery must not hear of it.
        emit("run.claim_failed", logging.ERROR, job=job.id, why=str(error))
        raise Ignore("the claim failed") from error
    # A signal may have broken into the claim's commit.
    discard(connections[using])
    try:
        _give_back_unseen(using, job)
    except DatabaseFault as fault:
        # Then the lease ends, and the rescue takes over.
        emit("run.unrecorded", logging.ERROR, job=job.id, why=str(fault))
    if not isinstance(error, Exception):
        raise error
    raise Ignore("timed out before the body began") from error


def _give_back_unseen(using: str, job: NamedJob) -> None:
    # A claim whose answer was lost: held in our name, and nobody here knows of it.
    found = standing.look(using, job)
    if found is None or found.state != State.RUNNING or found.owner != owner():
        return
    if (job.id, found.fence) in live:
        return
    hold = running.Hold(job_id=job.id, fence=found.fence, owner=owner(), using=using)
    if running.put_back(hold, reason=Reason.OUTAGE):
        emit("run.claim_returned", job=job.id)
