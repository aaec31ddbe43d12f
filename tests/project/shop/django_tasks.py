"""Tasks of Django's Tasks framework, run through celery_guard's backend."""

from __future__ import annotations

from typing import Any

from asgiref.sync import sync_to_async

from celery_guard import coalesce, current_job
from celery_guard.backends import guarded
from tests.project.shop.models import Mark
from tests.project.shop.witness import leave_trace, traces

try:
    from django.tasks import task  # type: ignore[import-not-found, unused-ignore]
except ModuleNotFoundError:
    from django_tasks import task  # type: ignore[no-redef, assignment, unused-ignore]


@task
def write(name: str, value: str = "") -> str:
    """Every call is a job."""
    leave_trace(name, value)
    Mark.objects.create(name=name, value=value)
    return value


@task(priority=10)
@guarded(key="once:{name}")
def once(name: str, value: int = 0) -> int:
    """Its key makes repeated calls one job."""
    leave_trace(name, str(value))
    return value


@task(queue_name="emails")
def mail(name: str) -> str:
    """In a queue that stands for a lane."""
    leave_trace(name)
    return current_job().claim.lane


@task
@coalesce("latest:{name}")
def latest(name: str) -> None:
    """Only the latest request matters."""
    leave_trace(name)


@task
@guarded(transient=(ConnectionError,))
def flaky(name: str, failures: int) -> int:
    """Fails a few times, then succeeds."""
    leave_trace(name)
    Mark.objects.create(name=name)
    if len(traces(name)) <= failures:
        raise ConnectionError(f"try {len(traces(name))} of {name}")
    return len(traces(name))


@task
def broken(name: str) -> None:
    """Fails for good."""
    leave_trace(name)
    raise ZeroDivisionError(name)


@task(takes_context=True)
def told(context: Any, name: str) -> list[Any]:
    """Says what its context says."""
    result = context.task_result
    leave_trace(name)
    return [result.id, context.attempt, result.task.priority, result.args, result.kwargs]


@task
async def awaited(name: str) -> str:
    """A coroutine; what it writes belongs to the job's transaction."""
    await Mark.objects.acreate(name=name)
    inside = await sync_to_async(Mark.objects.filter(name=name).count)()
    return f"{name} {inside}"


@task
async def awaited_and_broken(name: str) -> None:
    """The same, undone."""
    await Mark.objects.acreate(name=name)
    raise ZeroDivisionError(name)
