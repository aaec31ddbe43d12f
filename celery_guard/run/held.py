"""A message whose job is held: the job goes back to waiting, and nothing is used up.

On PostgreSQL the claim itself passes over a held job, and only then is it asked why. Elsewhere it
is asked before, by what this process has read of the switches within the last second.
"""

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
    if any(hold.task in ("", task.name) for hold in switches(task.guard.alias).holds):
        put_aside_if_held(task, job)


def put_aside_if_held(task: Guarded, job: NamedJob) -> None:
    """Put the job back where a hold covers it, by what the database says now.

    :raises celery.exceptions.Ignore: when it went back: the message is done with.
    """
    until = step_aside(task.guard.alias, job)
    if until is None:
        return
    emit("run.held", job=job.id, task=task.name, until=until.isoformat())
    raise Ignore(f"held until {until.isoformat()}")
