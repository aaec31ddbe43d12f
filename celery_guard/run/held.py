"""A message whose job is held: the job goes back to waiting, and nothing is used up."""

from __future__ import annotations

from celery.exceptions import Ignore

from celery_guard.enqueue.declaration import Guarded
from celery_guard.enqueue.steering.reading import switches
from celery_guard.events import emit
from celery_guard.jobs.named import NamedJob
from celery_guard.jobs.pausing import step_aside


def step_aside_if_held(task: Guarded, job: NamedJob) -> None:
    """Put the job back where a hold covers it; without a hold on its task this costs nothing.

    :raises celery.exceptions.Ignore: when it went back: the message is done with.
    """
    using = task.guard.alias
    if not any(hold.task in ("", task.name) for hold in switches(using).holds):
        return
    until = step_aside(using, job)
    if until is None:
        return
    emit("run.held", job=job.id, task=task.name, until=until.isoformat())
    raise Ignore(f"held until {until.isoformat()}")
