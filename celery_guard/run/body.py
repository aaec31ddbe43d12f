"""The two styles of a body."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from celery.exceptions import Ignore
from django.db import connections, transaction

from celery_guard.errors import GuardError
from celery_guard.jobs import running
from celery_guard.run.ending import close_out
from celery_guard.run.forked import called_alone
from celery_guard.run.job import CurrentJob
from celery_guard.run.next_steps import Replaced
from celery_guard.run.outcome import IGNORED, REPLACED, Retry, Succeeded
from celery_guard.run.record import encoded


def run_body(job: CurrentJob, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Succeeded | Retry:
    """Run the body and end the attempt; whatever comes out as an exception is not ended yet."""
    if job.task.guard.atomic:
        return _in_one_transaction(job, args, kwargs)
    return _step_by_step(job, args, kwargs)


def _in_one_transaction(
    job: CurrentJob, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Succeeded | Retry:
    connection = connections[job.using]
    with transaction.atomic(using=job.using):
        depth = len(connection.atomic_blocks)
        outcome = _call(job, args, kwargs)
        if len(connection.atomic_blocks) != depth:
            raise _left_open(job)
        return close_out(job, outcome)


def _step_by_step(
    job: CurrentJob, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Succeeded | Retry:
    depth = len(connections[job.using].atomic_blocks)
    with _spared(job):
        outcome = _call(job, args, kwargs)
    if job.finished is not None:
        return _returned_after(job, job.finished, outcome)
    connection = connections[job.using]
    # Inside somebody's transaction (a test case, an eager call) one was open before.
    by_hand = not job.nested and not connection.autocommit
    if by_hand or len(connection.atomic_blocks) != depth:
        raise _left_open(job)
    with transaction.atomic(using=job.using):
        return close_out(job, outcome)


@contextlib.contextmanager
def _spared(job: CurrentJob) -> Iterator[None]:
    # In autocommit an error of a statement undoes that statement. Inside somebody's transaction
    # (a test case, an eager call) it would spoil all of it; there it undoes the body.
    if not job.nested:
        yield
        return
    connection = connections[job.using]
    # The connection's own: Django 6.1 has renamed the function beside `atomic`.
    point: Any = connection.savepoint()
    try:
        yield
    except BaseException:
        if connection.needs_rollback or not connection.is_usable():
            connection.needs_rollback = False
            connection.savepoint_rollback(point)
        raise
    connection.savepoint_commit(point)


def _returned_after(job: CurrentJob, finished: Succeeded, returned: Succeeded | Retry) -> Succeeded:
    if finished.value is not None or not isinstance(returned, Succeeded):
        return finished
    if (text := encoded(job, returned.value)) is not None:
        running.keep_result(job.hold, text)
    return Succeeded(value=returned.value)


def _call(job: CurrentJob, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Succeeded | Retry:
    try:
        value = called_alone(job.task, args, kwargs)
    except Replaced as end:
        return Succeeded(reason=REPLACED, tell=end)
    except Ignore as end:
        # As in Celery: the work is done, and nothing is told under this task id.
        return Succeeded(reason=IGNORED, tell=end)
    return job.asked or Succeeded(value=value)


def _left_open(job: CurrentJob) -> GuardError:
    return GuardError(f"{job.task.name} left a transaction open, which has been rolled back")
