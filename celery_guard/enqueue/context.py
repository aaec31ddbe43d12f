"""What a job takes along from where it was asked for, such as the language or a request's id.

Nothing, unless the site says so. A value travels in one header of the message and is in force for
the body and its next steps; afterwards everything is as it was before.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any

from celery import current_task
from celery.signals import before_task_publish
from django.utils import translation

HEADER = "guard_context"

_inside: ContextVar[bool] = ContextVar("guard_in_context", default=False)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Carried:
    read: Callable[[], Any]
    enter: Callable[[Any], AbstractContextManager[Any]]


_carried: dict[str, _Carried] = {}


def carry(
    name: str,
    *,
    read: Callable[[], Any],
    enter: Callable[[Any], AbstractContextManager[Any]],
) -> None:
    """Let every message take a value along, and guarded bodies run with it.

    :param name: names the value in the message; a second call with it replaces the first.
    :param read: gives the value at the call, as JSON holds it; None takes nothing along.
    :param enter: a context manager in which the value is in force. It surrounds the body; what it
        raises is the body's failure.
    """
    _carried[name] = _Carried(read=read, enter=enter)
    before_task_publish.connect(_write, dispatch_uid="celery_guard.context", weak=False)


def carry_variable(name: str, variable: ContextVar[Any]) -> None:
    """:func:`carry` the value of a context variable; one that is not set takes nothing along."""
    carry(name, read=lambda: variable.get(None), enter=lambda value: _set(variable, value))


def carry_language() -> None:
    """:func:`carry` the language that is active at the call; none where translation is off."""
    carry("language", read=translation.get_language, enter=translation.override)


def carry_nothing() -> None:
    """Take back every :func:`carry`, for the end of a test."""
    _carried.clear()
    before_task_publish.disconnect(dispatch_uid="celery_guard.context")


@contextlib.contextmanager
def in_context(request: Any) -> Iterator[None]:
    """Put in force what the message of ``request`` has taken along."""
    token = _inside.set(True)
    try:
        with contextlib.ExitStack() as stack:
            for name, value in _told(request).items():
                # A worker of another release may know fewer.
                if name in _carried:
                    stack.enter_context(_carried[name].enter(value))
            yield
    finally:
        _inside.reset(token)


def _write(headers: dict[str, Any] | None = None, **_: Any) -> None:
    if headers is None:
        return
    task: Any = current_task
    if task and not _inside.get() and (told := _told(task.request)):
        # After the body: Celery sends a chord's body and errbacks then, for the same caller.
        headers[HEADER] = dict(told)
        return
    found = {name: one.read() for name, one in _carried.items()}
    headers[HEADER] = {name: value for name, value in found.items() if value is not None}


def _told(request: Any) -> Mapping[str, Any]:
    told = request.get(HEADER) or (request.headers or {}).get(HEADER)
    return told if isinstance(told, Mapping) else {}


@contextlib.contextmanager
def _set(variable: ContextVar[Any], value: Any) -> Iterator[None]:
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)
