"""After an exception: find out what is true, write it down, and decide what Celery is told.

Nothing is recorded before it is known that nothing was committed, and nothing is told to Celery
that the ledger does not say.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, TypeVar

from billiard.exceptions import SoftTimeLimitExceeded
from celery.exceptions import Ignore
from django.db import Error as DatabaseFault
from django.db import InterfaceError, InternalError, OperationalError, connections

from celery_guard.enqueue.context import in_context
from celery_guard.enqueue.tenants import acting_for
from celery_guard.errors import LeaseLost
from celery_guard.events import emit
from celery_guard.faults import fault_point
from celery_guard.jobs import standing
from celery_guard.jobs.idling import brief
from celery_guard.jobs.states import Reason, State
from celery_guard.run.classify import celery_retry, is_time_limit, outcome_of, underlying
from celery_guard.run.current import running_for
from celery_guard.run.job import CurrentJob
from celery_guard.run.outcome import Dead, Fail, Outcome, Retry, Snooze, Succeeded, Uncertain
from celery_guard.run.patience import pauses
from celery_guard.run.record import record
from celery_guard.run.rescue import take_from
from celery_guard.run.retry_budget import within_budget
from celery_guard.run.saying import say_ended
from celery_guard.run.unseen import veil_for
from celery_guard.run.worker import discard, shutting_down
from celery_guard.settle.leaving import leave_open

PATIENCE = 30.0
"""Longest try to write down how an attempt ended, in seconds; the lease may be shorter."""


T = TypeVar("T")


def resolve(job: CurrentJob, error: BaseException, args: Any, kwargs: Any) -> Succeeded | Retry:
    """Settle an attempt whose body or commit raised ``error``.

    Returns the outcome that turns out to be committed; else raises what Celery is to be told:
    ``Ignore`` when another attempt, or the rescue, will speak for the job. The end of the
    process goes on as it came, whatever became of the job.
    """
    error = underlying(error)
    veil_for(job, error)
    _put_in_order(job, error)
    if not isinstance(error, Exception) and not is_time_limit(error):
        _leave(job, error)
        raise error
    if job.finishing is not None and _is_committed(job):
        emit("run.error_after_commit", logging.WARNING, **_facts(job), why=repr(error))
        _run_hooks(job)
        return job.finishing
    if isinstance(error, LeaseLost):
        raise _lost(job) from error
    outcome = outcome_of(job, error, args, kwargs)
    if isinstance(outcome, Fail | Dead) and _is_asking(job):
        outcome = Uncertain(cause=error, tell=celery_retry(error, 0.0))
    if isinstance(outcome, Retry):
        outcome = _in_budget(job, outcome)
    fault_point("run.recording", job.id)
    _write_down(job, outcome)
    fault_point("run.recorded", job.id)
    say_ended(job, outcome)
    assert outcome.tell is not None
    raise outcome.tell


def _in_budget(job: CurrentJob, outcome: Retry) -> Retry:
    return _persistently(job, lambda: within_budget(job, outcome))


def _is_asking(job: CurrentJob) -> bool:
    # Effects are refused in atomic bodies.
    return not job.task.guard.atomic and _persistently(job, lambda: leave_open(job.hold))


def _put_in_order(job: CurrentJob, error: BaseException) -> None:
    connection = connections[job.using]
    if job.nested or connection.connection is None:
        return
    left_open = connection.in_atomic_block or not connection.autocommit
    faults = OperationalError | InterfaceError | InternalError
    broken = isinstance(error, faults) or not isinstance(error, Exception)
    # A signal may have come in the middle of a statement; the limit's arrives as an Exception.
    if left_open or broken or isinstance(error, SoftTimeLimitExceeded):
        discard(connection)


def _is_committed(job: CurrentJob) -> bool:
    found = _persistently(job, lambda: standing.look(job.using, job.row))
    if found is None or found.fence != job.fence:
        raise _lost(job)
    return found.state != State.RUNNING


def _run_hooks(job: CurrentJob) -> None:
    if job.hooks is None:
        return
    try:
        with running_for(job), acting_for(job.claim.tenant), in_context(job.request):
            job.hooks.run_if_none_was()
    except Exception as error:  # noqa: BLE001 - a hook's own; the job is done, as after any hook that fails
        emit("run.error_after_commit", logging.WARNING, **_facts(job), why=repr(error))


def _write_down(job: CurrentJob, outcome: Outcome) -> None:
    doubtful = False

    def write() -> bool:
        nonlocal doubtful
        again, doubtful = doubtful, True
        with brief(job.using):
            moved = record(job, outcome)
        # The answer of an earlier commit may have been lost: nobody else moves under our fence.
        return moved or (again and _has_moved(job))

    if not _persistently(job, write):
        raise _lost(job)


def _has_moved(job: CurrentJob) -> bool:
    found = standing.look(job.using, job.row)
    return found is not None and found.fence == job.fence and found.state != State.RUNNING


def _persistently(job: CurrentJob, action: Callable[[], T]) -> T:
    deadline = time.monotonic() + min(PATIENCE, job.lease)
    for pause in pauses():
        try:
            return action()
        except (DatabaseFault, SoftTimeLimitExceeded) as error:
            if job.nested:
                raise
            discard(connections[job.using])
            if time.monotonic() > deadline:
                # The lease ends, and the rescue finds the job as it is.
                emit("run.unrecorded", logging.ERROR, **_facts(job), why=repr(error))
                raise Ignore("the database is away") from error
            time.sleep(pause)
    raise AssertionError("unreachable")


def _leave(job: CurrentJob, error: BaseException) -> None:
    # Both moves are fenced: a job whose end was committed just now stays as it is.
    try:
        if shutting_down(error):
            # A deploy is not the job's fault: nothing is used up.
            end = Snooze(due=0.0, reason=Reason.SHUTDOWN, tell=error, cause=error)
            with brief(job.using):
                record(job, end)
        else:
            take_from(job.using, job.row, job.hold.owner, fence=job.fence)
    except DatabaseFault as fault:
        # The process is about to end: the lease does too, and the rescue takes over.
        emit("run.unrecorded", logging.ERROR, **_facts(job), why=repr(fault))


def _lost(job: CurrentJob) -> Ignore:
    emit("run.lease_lost", logging.WARNING, **_facts(job))
    return Ignore("another attempt has this job")


def _facts(job: CurrentJob) -> dict[str, Any]:
    return {"job": job.id, "task": job.task.name, "fence": job.fence}
