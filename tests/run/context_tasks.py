"""Guarded tasks that say in which context they run, and a structlog context for them."""

from contextvars import ContextVar

import structlog
from celery import Task
from django.utils import translation

from celery_guard import UNKEYED, guarded_task
from tests.project.shop.witness import leave_trace, traces

request_id: ContextVar[str] = ContextVar("request_id")


def speaks() -> str:
    """The language, the request's id and what structlog would add to each line."""
    bound = structlog.contextvars.get_contextvars()
    return f"{translation.get_language()} {request_id.get('-')} {bound.get('order', '-')}"


@guarded_task(key=UNKEYED)
def says(name: str) -> None:
    """Leaves what it speaks."""
    leave_trace(name, speaks())


@guarded_task(key=UNKEYED)
def says_then_asks(name: str) -> None:
    """The same, and asks for another job."""
    leave_trace(name, speaks())
    says.delay(f"{name}-next")


@guarded_task(key=UNKEYED, transient=(ConnectionError,))
def says_twice(name: str) -> None:
    """Fails at its first attempt."""
    leave_trace(name, speaks())
    if len(traces(name)) == 1:
        raise ConnectionError(name)


@guarded_task(key=UNKEYED, bind=True)
def says_again(self: "Task[..., None]", name: str, last: bool = False) -> None:
    """Asks for another attempt with other arguments."""
    leave_trace(name, speaks())
    if not last:
        raise self.retry((name, True), countdown=0)
