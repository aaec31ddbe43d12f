"""What a message gets that finds no job to run."""

from __future__ import annotations

import json
import logging
from typing import Any

from celery.exceptions import Ignore
from django.db import connections, transaction
from kombu.utils import json as kombu_json

from celery_guard.enqueue.declaration import Guarded
from celery_guard.enqueue.tenants import tell_tenant
from celery_guard.errors import JobCancelled, JobError, KeyBusy
from celery_guard.events import emit
from celery_guard.faults import fault_point
from celery_guard.jobs import claiming, running, standing
from celery_guard.jobs.named import NamedJob
from celery_guard.jobs.release import EXPIRED
from celery_guard.jobs.standing import Standing
from celery_guard.jobs.states import TERMINAL, Reason, State
from celery_guard.run.chords import is_being_sent
from celery_guard.run.classify import celery_retry
from celery_guard.run.held import put_aside_if_held
from celery_guard.run.job import CurrentJob, Runnable, lease_of
from celery_guard.run.next_steps import forget, hand_on, tell_stranded
from celery_guard.run.outcome import SILENT, Succeeded
from celery_guard.run.patience import patiently


def answer(task: Guarded, job: NamedJob, stood: Standing | None = None) -> Any:
    """Answer a message whose job could not be claimed.

    A succeeded job answers with its stored result. Any other end raises its stored error, for
    Celery to store and to run errbacks. A job that runs elsewhere or waits is not answered: the
    message is only an extra copy.

    :param stood: how the job stood when it could not be claimed, where that is known.
    :raises JobError: the job's end.
    :raises celery.exceptions.Ignore: where there is nothing to say.
    """
    found, _ = patiently(task.guard.alias, lambda: _look(task, job, stood))
    if found is None:
        emit("run.purged", logging.WARNING, job=job.id, task=task.name)
        raise Ignore("the job has been purged")
    emit("run.duplicate", job=job.id, task=task.name, state=found.state)
    if found.state not in TERMINAL or found.reason in SILENT:
        raise Ignore(f"a copy of a message; the job is {found.state}")
    return _told(task, job.id, found)


def _look(task: Guarded, job: NamedJob, stood: Standing | None) -> Standing | None:
    using = task.guard.alias
    found = stood or standing.look(using, job)
    if found is None or found.state != State.WAITING or not (found.expired or found.sent):
        return found
    if found.expired:
        standing.expire(using, job, EXPIRED)
    else:
        # It could have been claimed, but for a hold; or the hold has just ended.
        put_aside_if_held(task, job)
        standing.unsend(using, job)
    return standing.look(using, job)


def _told(task: Guarded, job_id: int, found: Standing) -> Any:
    request = task.request
    tell_tenant(request, found.tenant)
    # Links and the next step went out with the job's end.
    if found.state == State.SUCCEEDED:
        forget(request)
    if found.answered:
        if found.state != State.SUCCEEDED:
            raise Ignore("its end has been told")
        request.chord = None  # It has been counted.
    request.guard_told = (task.guard.alias, job_id, found.fence)
    if found.state == State.SUCCEEDED:
        return stored_result(found.result)
    raise stored_error(found)


def stored_result(text: str | None) -> Any:
    """The return value that was stored; None where there was none, or it could not be stored."""
    return None if text is None else kombu_json.loads(text)


def stored_error(found: Standing) -> JobError:
    """The end of a job as an exception."""
    told = json.loads(found.error) if found.error else {}
    text = f"{told['type']}: {told['message']}" if told else f"the job was {found.state}"
    kind = JobCancelled if found.state == State.CANCELLED else JobError
    return kind(text, found.state, found.reason)


def told(task: Any) -> None:
    """Celery has stored what it was told: whoever waits for the job has been answered.

    Called from the task's ``after_return``.
    """
    request = task.request
    if (owed := getattr(request, "guard_told", None)) is not None:
        _, job_id, _ = owed
        if is_being_sent(task, request):
            # Left untold: a sweep has the message sent again.
            return
        fault_point("run.answering", job_id)
        standing.answered(*owed)
        fault_point("run.answered", job_id)


def answer_echo(task: Runnable, claim: claiming.Claim) -> Any:
    """Answer a task id whose work is another job's, as that job ends; else ask again later."""
    using, job_id = claim.hold.using, claim.hold.job_id
    tell_tenant(task.request, claim.tenant)
    nested = connections[using].in_atomic_block
    job = CurrentJob(task, claim, lease=lease_of(task), nested=nested)
    found, _ = patiently(using, lambda: _follow(job))
    if found is None:
        raise Ignore("another attempt has this job")
    if found.state not in TERMINAL:
        raise celery_retry(None, _pause(claim))
    tell_stranded(job)
    return _told(task, job_id, found)


def _follow(job: CurrentJob) -> Standing | None:
    survivor = standing.look_through(job.using, job.id)
    if survivor is None or survivor.state in TERMINAL:
        moved = _end_like(job, survivor)
    else:
        moved = running.put_back(job.hold, reason=Reason.ECHO, due=_pause(job.claim))
    return standing.look(job.using, job.row) if moved else None


def _pause(claim: claiming.Claim) -> float:
    return min(60.0, 2.0 ** min(claim.starts - 1, 6))


def _end_like(job: CurrentJob, survivor: Standing | None) -> bool:
    if survivor is None:
        gone = {"type": "JobError", "message": "the job it repeats has been purged"}
        error = json.dumps({**gone, "state": State.FAILED, "reason": Reason.ECHO})
        return running.end(job.hold, state=State.FAILED, reason=Reason.ECHO, error=error)
    if survivor.state == State.SUCCEEDED:
        return _succeed_like(job, survivor)
    error = survivor.error or ""
    return running.end(job.hold, state=survivor.state, reason=survivor.reason, error=error)


def _succeed_like(job: CurrentJob, survivor: Standing) -> bool:
    try:
        with transaction.atomic(using=job.using):
            moved = running.succeed(job.hold, result=survivor.result, reason=survivor.reason)
            if moved:
                # Its own links and next steps: the survivor's canvas is another one.
                value = stored_result(survivor.result)
                hand_on(job, Succeeded(value=value, reason=survivor.reason))
    except KeyBusy:
        # The next step's key is just being used.
        moved = running.put_back(job.hold, reason=Reason.ECHO, due=_pause(job.claim))
    return moved
