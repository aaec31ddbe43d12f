"""Which job the running body belongs to."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

from celery_guard.errors import NoCurrentJob
from celery_guard.run.job import CurrentJob

_current: ContextVar[CurrentJob | None] = ContextVar("guard_current_job", default=None)
_stand_in: ContextVar[Any] = ContextVar("guard_stand_in", default=None)


def current_job() -> CurrentJob:
    """The job that the running body belongs to.

    Where the task's mode has its body run without a job, something that can be used like one.

    :raises NoCurrentJob: outside a guarded body, and inside a task that was called directly as a
        function (also by another task's body, or by ``map``, ``starmap`` and ``chunks``).
    """
    job: CurrentJob | None = _current.get() or _stand_in.get()
    if job is None:
        raise NoCurrentJob
    return job


def running_job() -> CurrentJob | None:
    """The job that the running body belongs to; None also where something stands in for one."""
    return _current.get()


@contextlib.contextmanager
def running_for(job: CurrentJob | None, stand_in: Any = None) -> Iterator[None]:
    """Make ``job`` the current one; ``stand_in`` is what the body gets where there is none."""
    token, other = _current.set(job), _stand_in.set(stand_in)
    try:
        yield
    finally:
        _current.reset(token)
        _stand_in.reset(other)
