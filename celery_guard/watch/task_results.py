"""A job as Django's Tasks framework shows it: ``TaskResult``, made from the ledger."""

from __future__ import annotations

import dataclasses
import traceback
import uuid
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from celery import states
from django.core.exceptions import ImproperlyConfigured
from django.utils import timezone
from django.utils.module_loading import import_string
from kombu.serialization import loads

from celery_guard.enqueue.handle import error_of, result_of
from celery_guard.enqueue.task_framework import (
    AnyResult,
    AnyTask,
    InvalidTask,
    Task,
    TaskError,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultStatus,
)
from celery_guard.jobs.following import answering
from celery_guard.jobs.models import Attempt, Job
from celery_guard.jobs.states import State
from celery_guard.outbox.envelope import Envelope
from celery_guard.relay.broker_app import ledgers, load_app
from celery_guard.run.failure import failure_of
from celery_guard.run.job import CurrentJob

HEADER = "guard_task"
"""The message header with what a call of a Django task said beside its arguments."""

_STATUS = {
    State.WAITING: TaskResultStatus.READY,
    State.RUNNING: TaskResultStatus.RUNNING,
    State.RECONCILING: TaskResultStatus.RUNNING,
    State.SUCCEEDED: TaskResultStatus.SUCCESSFUL,
}
_NOBODY = "unknown"
"""Stands for a worker that the ledger has not noted: it does so where an attempt ends badly."""


def header_of(task: AnyTask) -> dict[str, Any]:
    """What the message keeps of the call."""
    return {
        "backend": task.backend,
        "queue_name": task.queue_name,
        "priority": task.priority,
        "run_after": None if task.run_after is None else task.run_after.isoformat(),
        "enqueued_at": timezone.now().isoformat(),
    }


def asked(task: AnyTask, result_id: str, args: Any, kwargs: Any) -> AnyResult:
    """The result of a job that was just written."""
    return _made(task, result_id, args, kwargs, enqueued_at=timezone.now())


def started(task: AnyTask, job: CurrentJob, args: Any, kwargs: Any) -> AnyResult:
    """The result of the job whose attempt begins, known without a query."""
    told = _told(job.request.get(HEADER) or (job.request.headers or {}).get(HEADER))
    now = job.claim.started_at
    return _made(
        _as_called(task, told),
        str(job.public_id),
        list(args),
        kwargs,
        status=TaskResultStatus.RUNNING,
        enqueued_at=_instant(told.get("enqueued_at")),
        started_at=now,
        last_attempted_at=now,
        worker_ids=[_NOBODY] * (job.starts - 1) + [str(job.request.hostname or _NOBODY)],
    )


def ended(result: AnyResult, status: str, value: Any) -> AnyResult:
    """``result`` as it is now that Celery has been told of the end."""
    good = status == states.SUCCESS
    changed = dataclasses.replace(
        result,
        status=TaskResultStatus.SUCCESSFUL if good else TaskResultStatus.FAILED,
        finished_at=timezone.now(),
        errors=[] if good else [_raised(value)],
    )
    object.__setattr__(changed, "_return_value", value if good else None)
    return changed


def find(result_id: str, known: Mapping[str, AnyTask]) -> AnyResult:
    """The result of the job with this public id; ``known`` are the definitions by name.

    :raises TaskResultDoesNotExist: when there is none, or not all of it any more.
    """
    using, job = _job(result_id)
    if job.message is None:
        raise TaskResultDoesNotExist(f"{result_id}: its arguments and result have been purged")
    envelope = Envelope.decode(job.message.envelope)
    told = _told(envelope.headers.get(HEADER))
    task = _as_called(known.get(job.task) or _imported(job.task, result_id), told)
    kinds = (envelope.content_type, envelope.content_encoding)
    args, kwargs, _ = loads(bytes(job.message.body), *kinds, accept=[envelope.content_type])
    return _read(using, job, task, args, kwargs)


def _job(result_id: str) -> tuple[str, Job]:
    try:
        public_id = uuid.UUID(str(result_id))
    except ValueError as error:
        raise TaskResultDoesNotExist(result_id) from error
    for using in ledgers(load_app()):
        jobs = Job.objects.using(using).select_related("message")
        if (job := jobs.filter(public_id=public_id, plain=False).first()) is not None:
            return using, job
    raise TaskResultDoesNotExist(result_id)


def _imported(name: str, result_id: str) -> AnyTask:
    try:
        found = import_string(name)
    except ImportError as error:
        raise TaskResultDoesNotExist(f"{result_id}: there is no {name}") from error
    if not isinstance(found, Task):
        raise TaskResultDoesNotExist(f"{result_id}: {name} is no Django task")
    return found


def _read(using: str, job: Job, task: AnyTask, args: Any, kwargs: Any) -> AnyResult:
    shown = answering(using, job)
    attempts = list(Attempt.objects.using(using).filter(job=shown).order_by("number", "pk"))
    status = _STATUS.get(State(shown.state), TaskResultStatus.FAILED)
    first = next((one.started_at for one in attempts if one.number == 1), shown.started_at)
    result = _made(
        task,
        str(job.public_id),
        args,
        kwargs,
        status=status,
        enqueued_at=job.created_at,
        started_at=first or shown.started_at,
        last_attempted_at=shown.started_at,
        finished_at=shown.finished_at,
        errors=list(_errors(shown, attempts)),
        worker_ids=list(_workers(shown, attempts)),
    )
    object.__setattr__(result, "_return_value", result_of(shown))
    return result


def _errors(job: Job, attempts: Sequence[Attempt]) -> Iterator[TaskError]:
    texts = [one.error for one in attempts if one.error]
    for text in texts:
        kind = text.partition(": ")[0]
        yield TaskError(
            exception_class_path=kind if "." in kind else f"builtins.{kind}", traceback=text
        )
    if not texts and (error := error_of(job)) is not None and job.state != State.SUCCEEDED:
        yield _raised(error)


def _raised(error: Any) -> TaskError:
    kind = type(error)
    path = f"{kind.__module__}.{kind.__qualname__}"
    held = getattr(error, "__traceback__", None)
    text = "".join(traceback.format_exception(error)) if held else failure_of(error).text
    return TaskError(exception_class_path=path, traceback=text)


def _workers(job: Job, attempts: Sequence[Attempt]) -> Iterator[str]:
    named = {one.number: one.worker for one in attempts if one.worker}
    for number in range(1, job.starts + 1):
        yield named.get(number, _NOBODY)


def _told(header: Any) -> Mapping[str, Any]:
    return header if isinstance(header, Mapping) else {}


def _as_called(task: AnyTask, told: Mapping[str, Any]) -> AnyTask:
    names = ("backend", "queue_name", "priority")
    changes = {name: told[name] for name in names if name in told}
    try:
        return dataclasses.replace(task, **changes, run_after=_instant(told.get("run_after")))
    except (InvalidTask, ImproperlyConfigured, ValueError):
        # A later release has other queues or backends: the definition is what there is.
        return task


def _instant(text: Any) -> datetime | None:
    return datetime.fromisoformat(text) if isinstance(text, str) and text else None


def _made(task: AnyTask, result_id: str, args: Any, kwargs: Any, **facts: Any) -> AnyResult:
    empty: dict[str, Any] = {
        "status": TaskResultStatus.READY,
        "started_at": None,
        "finished_at": None,
        "last_attempted_at": None,
        "errors": [],
        "worker_ids": [],
    }
    return TaskResult(
        task=task,
        id=result_id,
        args=args,
        kwargs=kwargs,
        backend=task.backend,
        **{**empty, **facts},
    )
