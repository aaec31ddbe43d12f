"""What Celery would send after the body: links, the chain's next step, a replacement.

They are captured in the transaction of the job's end, so they exist if and only if the body's
own writes do.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from billiard.exceptions import SoftTimeLimitExceeded
from celery import signature
from celery.app.task import Context
from celery.exceptions import Ignore
from django.db import Error as DatabaseFault
from django.db import transaction

from celery_guard.errors import KeyBusy
from celery_guard.events import emit
from celery_guard.jobs import idling, running, standing
from celery_guard.jobs.clock import DatabaseNow
from celery_guard.jobs.models import Job
from celery_guard.jobs.states import Reason, State
from celery_guard.outbox.capture import capture_everything
from celery_guard.run.failure import failure_of
from celery_guard.run.outcome import Succeeded

if TYPE_CHECKING:
    from celery_guard.run.job import CurrentJob

Step = tuple[Any, dict[str, Any]]


class Replaced(Ignore):
    """The body ended by ``self.replace``; carries the frozen signature that takes its place."""

    def __init__(self, replacement: Any) -> None:
        super().__init__("Replaced by new task")
        self.replacement = replacement

    def __reduce__(self) -> tuple[type[Ignore], tuple[str]]:
        return Ignore, ("Replaced by new task",)


def hand_on(job: CurrentJob, end: Succeeded) -> None:
    """Enqueue what follows ``end`` in the open transaction.

    A step that can't be enqueued becomes a failed job of its own and undoes nothing.
    """
    if isinstance(end.tell, Replaced):
        # The replacement inherits the task id, and with it the public id.
        idling.end_when_idle(job.using, job.lease)
        running.give_up_id(job.hold)
        with capture_everything():
            end.tell.replacement.delay()
    elif end.reason == Reason.DONE and not job.request.is_eager:
        for step, options in _steps(job):
            _enqueue(job, step, end.value, options)


def forget(request: Context) -> None:
    """Keep Celery from sending what is in the outbox, or was with an earlier answer."""
    request.callbacks = request.chain = None


def _steps(job: CurrentJob) -> Iterator[Step]:
    request = job.request
    if not (request.callbacks or request.chain):
        # Of nearly all: and to read one of Celery's settings takes longer than all of this.
        return
    options = {"parent_id": request.id, "root_id": request.root_id or request.id}
    if job.task.app.conf.task_inherit_parent_priority:
        options["priority"] = (request.delivery_info or {}).get("priority")
    for callback in request.callbacks or ():
        yield signature(callback, app=job.task.app), options
    if chain := request.chain:
        yield signature(chain[-1], app=job.task.app), {**options, "chain": chain[:-1]}


def _enqueue(job: CurrentJob, step: Any, value: Any, options: dict[str, Any]) -> None:
    try:
        # A step may be many messages; a half of them must not stay.
        with transaction.atomic(using=job.using), capture_everything():
            step.apply_async((value,), **options)
    except (DatabaseFault, KeyBusy, SoftTimeLimitExceeded):
        # Not the step's fault: the attempt as a whole is tried again.
        raise
    except Exception as error:  # noqa: BLE001 - whatever it is, it is kept with the step
        _strand(job, step, error, options)


def _strand(job: CurrentJob, step: Any, error: Exception, options: dict[str, Any]) -> None:
    failure = failure_of(error)
    task_id = str(step.options.get("task_id") or uuid.uuid4())
    now = DatabaseNow()
    row = Job.objects.using(job.using).create(
        public_id=_free_id(job.using, task_id),
        task=str(step.task)[:255],
        lane=job.claim.lane,
        tenant=job.claim.tenant,
        state=State.FAILED,
        reason=Reason.UNSENDABLE,
        awaited=True,
        created_at=now,
        first_due_at=now,
        finished_at=now,
        error=failure.stored(State.FAILED, Reason.UNSENDABLE),
    )
    emit("run.step_failed", job=job.id, task=job.task.name, step=str(step.task), why=failure.text)
    waiting = Context({**step.options, "id": task_id, "task": step.task, **options})
    waiting.errbacks = step.options.get("link_error")
    job.stranded.append((row.pk, waiting, error))


def _free_id(using: str, task_id: str) -> uuid.UUID:
    from celery_guard.jobs.adding import public_id_of

    wanted = public_id_of(task_id)
    taken = Job.objects.using(using).filter(public_id=wanted).exists()
    return uuid.uuid4() if taken else wanted


def tell_stranded(job: CurrentJob) -> None:
    """After the commit: store the failure of steps that could not be enqueued."""
    for job_id, waiting, error in job.stranded:
        try:
            job.task.backend.mark_as_failure(waiting.id, error, request=waiting)
            standing.answered(job.using, job_id, 0)
        except Exception as fault:  # noqa: BLE001 - backends raise what their clients raise
            # The job is done, whatever the backend says; the step's own row holds its end.
            emit("run.step_untold", logging.ERROR, job=job.id, step=waiting.id, why=repr(fault))
