"""``self.retry`` and ``self.replace`` in a guarded body: nothing is published by them.

A retry is the same row, waiting until it is due. The call raises Celery's own ``Retry``, which
carries what the row needs, and the end of the attempt writes it down.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

from celery.exceptions import MaxRetriesExceededError, Retry

from celery_guard.enqueue.hiding import carried
from celery_guard.errors import (
    Cancelled,
    GuardError,
    LeaseLost,
    Permanent,
    RetryAfter,
    UnknownOutcome,
)
from celery_guard.events import emit
from celery_guard.jobs.named import JOB_HEADER, NamedJob
from celery_guard.outbox.capture import Captured, collecting, instant
from celery_guard.outbox.store import check_size
from celery_guard.run import outcome
from celery_guard.run.backoff import backoff, budget
from celery_guard.run.classify import celery_retry
from celery_guard.run.job import CurrentJob, Runnable
from celery_guard.run.next_steps import Replaced
from celery_guard.run.unseen import veil_for

_FINAL = (Cancelled, LeaseLost, Permanent, RetryAfter, UnknownOutcome)
"""What says by itself how the attempt ends."""


def job_of(task: Runnable) -> CurrentJob | None:
    """The attempt that ``task``'s current request is run for, if it is guarded."""
    job = getattr(task.request, "guard_attempt", None)
    return job if isinstance(job, CurrentJob) else None


def retry(
    job: CurrentJob,
    args: Sequence[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    exc: BaseException | type[BaseException] | None = None,
    throw: bool = True,
    eta: datetime | str | None = None,
    countdown: float | None = None,
    max_retries: int | None = None,
    **options: Any,
) -> Retry:
    """Ask for another attempt, with the meaning of Celery's ``Task.retry``.

    ``eta`` and ``countdown`` win over the backoff; new arguments or options replace the job's
    message when the attempt ends. With ``throw=False`` the attempt is put back when its body
    has ended, and what it wrote is kept if it returned. A verdict given as ``exc`` (but for
    ``Transient``) is raised as it is.

    :raises celery.exceptions.Retry: unless ``throw`` is False.
    :raises celery.exceptions.MaxRetriesExceededError: (or ``exc``) when the budget is used up.
    """
    exc = exc() if isinstance(exc, type) else exc
    veil_for(job, exc)
    if isinstance(exc, _FINAL):
        # A broad autoretry_for catches these too, and would count or repeat what they forbid.
        raise exc
    limit = budget(job.task) if max_retries is None else max_retries + 1
    if limit is not None and job.failures + 1 >= limit:
        _give_up(job, exc)
    due = _due(job, eta, countdown)
    again, message = None, None
    if job.request.is_eager:
        again = _eager_copy(job, _copy(job, args, kwargs, options))
    elif args is not None or kwargs is not None or options:
        again = _copy(job, args, kwargs, options)
        message = _message(again)
    told = celery_retry(exc, due, again=again, eager=job.request.is_eager)
    job.asked = outcome.Retry(due=due, tell=told, cause=exc, message=message)
    if throw:
        raise told
    return told


def _give_up(job: CurrentJob, exc: BaseException | None) -> NoReturn:
    request = job.request
    error = exc or MaxRetriesExceededError(
        f"Can't retry {job.task.name}[{request.id}] after {job.failures + 1} failures",
        task_args=request.args,
        task_kwargs=request.kwargs,
    )
    # Remembered by identity: what the body raises instead is judged for itself.
    job.exhausted = error
    raise error


def _due(job: CurrentJob, eta: datetime | str | None, countdown: float | None) -> float | datetime:
    if eta:
        return instant(eta) or 0.0
    return backoff(job.task, job.failures) if countdown is None else max(0.0, float(countdown))


def _copy(
    job: CurrentJob,
    args: Sequence[Any] | None,
    kwargs: Mapping[str, Any] | None,
    options: dict[str, Any],
) -> Any:
    args, kwargs = _merged(job.task, job.request, args, kwargs)
    failures = job.failures + 1
    # Celery forgets what the call hides, and would show the arguments of the copy.
    options = {**carried(job.task.app, job.request), **options}
    return job.task.signature_from_request(job.request, args, kwargs, retries=failures, **options)


def _eager_copy(job: CurrentJob, again: Any) -> Any:
    named = NamedJob(job.id, job.public_id)
    # Celery applies it at once; the header lets that attempt find this row.
    return again.set(headers={**(job.request.headers or {}), JOB_HEADER: str(named)})


def _merged(
    task: Runnable, request: Any, args: Sequence[Any] | None, kwargs: Mapping[str, Any] | None
) -> tuple[Sequence[Any], Mapping[str, Any]]:
    old_args, old_kwargs = request.args or (), request.kwargs or {}
    names = _positional(task)
    if args is not None and kwargs is None:
        taken = names[: len(args)]
        return args, {n: v for n, v in old_kwargs.items() if n not in taken}
    if kwargs is not None and args is None:
        # A keyword that names an inherited positional argument replaces it.
        places = {name: n for n, name in enumerate(names[: len(old_args)]) if name}
        merged = list(old_args)
        for name in places.keys() & kwargs.keys():
            merged[places[name]] = kwargs[name]
        return merged, {n: v for n, v in kwargs.items() if n not in places}
    return old_args if args is None else args, old_kwargs if kwargs is None else kwargs


def _positional(task: Runnable) -> list[str]:
    names = []
    for parameter in inspect.signature(task.run).parameters.values():
        if parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD:
            names.append(parameter.name)
        elif parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
            names.append("")  # Takes a place, but no keyword can name it.
    return names


def _message(again: Any) -> Captured:
    with collecting() as kept:
        again.apply_async()
    # Here, where the body can still hear of it: the end of the attempt must not fail.
    check_size(kept[0])
    return kept[0]


def replace(job: CurrentJob, replacement: Any) -> NoReturn:
    """End the body: ``replacement`` (frozen with this task's id) is enqueued with its end."""
    if job.finished is not None:
        raise GuardError(f"{job.task.name}: replace() came after finish(), when all was committed")
    emit("run.replaced", job=job.id, task=job.task.name)
    raise Replaced(replacement)
