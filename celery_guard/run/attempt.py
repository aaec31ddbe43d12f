"""One attempt at a job, from the message to what Celery is told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from celery.app.task import Task as BaseTask
from django.db import connections

from celery_guard.conf import Mode
from celery_guard.enqueue.context import in_context
from celery_guard.enqueue.tenants import acting_for, tell_tenant
from celery_guard.faults import fault_point
from celery_guard.jobs import claiming
from celery_guard.run.aftermath import resolve
from celery_guard.run.answer import answer, answer_echo
from celery_guard.run.body import run_body
from celery_guard.run.comparison import Rehearsal, run_beside
from celery_guard.run.current import running_for
from celery_guard.run.heartbeat import heart
from celery_guard.run.job import CurrentJob, Runnable, lease_of
from celery_guard.run.limits import within_limits
from celery_guard.run.next_steps import forget, tell_stranded
from celery_guard.run.outcome import Retry, Succeeded
from celery_guard.run.plain import run_plainly
from celery_guard.run.retry import job_of
from celery_guard.run.saying import say_began, say_ended
from celery_guard.run.session import kept_clean
from celery_guard.run.take import inline_of, job_named_by, live, take


def execute(task: Runnable, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """What calling a guarded task does: ``GuardedTask.__call__``.

    For a message, the job is claimed, run and ended, and Celery told what is true of it. A message
    without a job whose task's mode says so runs as Celery would run it. Called
    directly, as a function, the task is just its body: no job, no transaction, no retry.
    """
    request = task.request
    if request.called_directly or job_of(task) is not None:
        with running_for(None):
            return BaseTask.__call__(cast(Any, task), *args, **kwargs)
    told = job_named_by(request)
    fault_point("run.claiming", *(() if told is None else (told.id,)))
    taken = take(task, told)
    if taken is None:
        return run_plainly(task, args, kwargs)
    job, claim = taken
    if not isinstance(claim, claiming.Claim):
        return answer(task, job, claim)
    if claim.survivor_id is not None:
        return answer_echo(task, claim)
    fault_point("run.claimed", job.id)
    return _run(task, claim, args, kwargs)


def _run(
    task: Runnable, claim: claiming.Claim, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Any:
    job = _begin(task, claim)
    say_began(job)
    try:
        with (
            running_for(job),
            acting_for(claim.tenant),
            in_context(job.request),
            kept_clean(job.using),
        ):
            if isinstance(job, Rehearsal):
                outcome: Succeeded | Retry = run_beside(job, args, kwargs)
            elif job.task.guard.dependency:
                with within_limits(job):
                    outcome = run_body(job, args, kwargs)
            else:
                outcome = run_body(job, args, kwargs)
    except BaseException as error:  # noqa: BLE001 - every end is written down, then told
        outcome = resolve(job, error, args, kwargs)
    finally:
        _over(job)
    fault_point("run.committed", job.id)
    say_ended(job, outcome)
    return _tell(job, outcome)


def _begin(task: Runnable, claim: claiming.Claim) -> CurrentJob:
    connection = connections[claim.hold.using]
    # The stamp, not the mode that the task has now.
    kind = Rehearsal if claim.mode == Mode.COMPARE else CurrentJob
    request = task.request
    inline = inline_of(request)
    lease = lease_of(task) if inline is None else inline.lease
    job = kind(task, claim, lease=lease, nested=connection.in_atomic_block)
    live.add((job.id, job.fence))
    # Nobody else sees a claim inside somebody's transaction; SQLite takes one writer at a time.
    if inline is None and not job.nested and connection.vendor != "sqlite":
        heart().watch(job)
    request.guard_attempt = job
    tell_tenant(request, claim.tenant)
    # Celery's own retry counter and backoff read it.
    request.retries = claim.failures
    if claim.awaited and inline is None:
        request.guard_told = (job.using, job.id, job.fence)
    return job


def _over(job: CurrentJob) -> None:
    heart().forget(job)
    live.discard((job.id, job.fence))


def _tell(job: CurrentJob, outcome: Succeeded | Retry) -> Any:
    if isinstance(outcome, Retry):
        raise outcome.tell
    if not job.request.is_eager:
        forget(job.request)
        tell_stranded(job)
    if outcome.tell is not None:
        raise outcome.tell
    return outcome.value
