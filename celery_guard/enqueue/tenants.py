"""For whom a call is made that does not say so itself: for whom the job is in which it is made."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

from celery import current_task

_acting: ContextVar[str] = ContextVar("guard_tenant", default="")


@contextlib.contextmanager
def acting_for(tenant: str) -> Iterator[None]:
    """Calls of tasks that declare no tenant are made for ``tenant`` within the block."""
    token = _acting.set(tenant)
    try:
        yield
    finally:
        _acting.reset(token)


def tell_tenant(request: Any, tenant: str) -> None:
    """Let what Celery sends for ``request`` after the body be for ``tenant``: a chord's body, errbacks."""
    request.guard_tenant = tenant


def tenant_here() -> str:
    """The tenant of the job in which this is asked; empty for none, and outside of jobs."""
    if tenant := _acting.get():
        return tenant
    task: Any = current_task
    return getattr(task.request, "guard_tenant", "") if task else ""
