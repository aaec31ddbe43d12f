"""Brings a released job's message to Celery's tracer in this process, as a worker would."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from celery import Celery
from celery.app.backends import by_url

from celery_guard.jobs.named import NamedJob
from celery_guard.jobs.sending import Sending
from celery_guard.run.message import opened, traced

_backends: dict[int, Any] = {}


def deliver(app: Celery, sending: Sending) -> Any:
    """Run one message; the exception that Celery was told, None for none.

    :raises celery.exceptions.NotRegistered: when the task is not known here.
    """
    assert sending.envelope is not None, "the job's message has been purged"
    job = None if sending.plain else NamedJob(sending.id, sending.public_id)
    return traced(app, opened(sending.task, sending.body, sending.envelope, job, "test"))


@contextlib.contextmanager
def results_in_memory(app: Celery) -> Iterator[None]:
    """Keep results in this process' memory within the block, whatever backend is configured."""
    if id(app) not in _backends:
        found: Any = by_url("cache+memory://", app.loader)
        kind, url = found
        _backends[id(app)] = kind(app=app, url=url)
    parts: Any = app
    local, cached = parts._local, parts._backend_cache
    usual = getattr(local, "backend", None)
    # Celery keeps one for all threads, or one for each; it has no other way to change it.
    parts._backend_cache, local.backend = None, _backends[id(app)]
    try:
        yield
    finally:
        parts._backend_cache = cached
        if usual is None:
            del local.backend
        else:
            local.backend = usual
