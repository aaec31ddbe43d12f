"""A guarded task that runs as a plain one, because its mode says so: no job, no transaction."""

from __future__ import annotations

import contextlib
import functools
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from django.db import transaction
from kombu.utils import json as kombu_json

from celery_guard.enqueue.context import in_context
from celery_guard.enqueue.declaration import Guarded
from celery_guard.enqueue.request import identity_of
from celery_guard.enqueue.rollout.observing import observed_run
from celery_guard.jobs.adding import public_id_of
from celery_guard.run.current import running_for
from celery_guard.run.provider_key import provider_key
from celery_guard.run.session import kept_clean
from celery_guard.settle.perform import Sending, decoded
from celery_guard.settle.provider import Provider


class PlainJob:
    """What :func:`current_job` gives a body that runs without a job.

    It looks like a job, so that one body serves both ways: ``effect`` makes its call, with the key
    that a job's would have and nothing kept; ``finish`` is a transaction; progress and
    checkpoints say nothing.
    """

    fence, starts, failures, lost, cancel_asked = 0, 1, 0, False, False

    def __init__(self, task: Guarded, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self._task, self._args, self._kwargs = task, args, kwargs
        self.using = task.guard.alias
        self.effects: dict[str, str] = {}

    @functools.cached_property
    def public_id(self) -> uuid.UUID:
        """That of the message; a random one where there is none."""
        task_id = self._task.request.id
        return public_id_of(task_id) if task_id else uuid.uuid4()

    @functools.cached_property
    def key(self) -> str | None:
        """The business key; None for an unkeyed task."""
        key: str | None = identity_of(self._task, self._args, self._kwargs)["key"]
        return key

    def provider_key(self, name: str, item: str = "") -> str:
        """The same as that of a job for this call, where it has a business key."""
        app: Any = self._task
        return provider_key(app.app.main, self._task.name, self.key, self.public_id, name, item)

    def effect(
        self,
        name: str,
        call: Any,
        *,
        find: Any = None,
        item: str = "",
        request: Any = None,
        provider: Provider | None = None,
    ) -> Any:
        """Make the call and return the provider's answer; nothing is kept."""
        key = self.provider_key(name, item)
        text = kombu_json.dumps(call(Sending(name=name, item=item, key=key, fence=0, again=False)))
        self.effects[effect_name(name, item)] = text
        return decoded(text)

    @contextlib.contextmanager
    def finish(self, result: Any = None) -> Iterator[None]:
        """The business writes, in one transaction."""
        with transaction.atomic(using=self.using):
            yield

    def progress(self, done: int, total: int | None = None) -> None:
        """Nobody is told."""

    def checkpoint(self) -> None:
        """There is nothing to keep."""


def effect_name(name: str, item: str) -> str:
    """An effect within its job, as one text."""
    return f"{name}\x00{item}" if item else name


def run_here(
    task: Guarded, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[Any, Mapping[str, str]]:
    """Run the body in the caller; what it returned, and what its effects were answered."""
    job = PlainJob(task, args, kwargs)
    # It was never a message, but would have been a job.
    with observed_run(task, str(uuid.uuid4()), args, kwargs):
        return _run_here(task, job, args, kwargs)


def _run_here(
    task: Guarded, job: PlainJob, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[Any, Mapping[str, str]]:
    cast(Any, task).push_request(args=args, kwargs=kwargs)
    try:
        with running_for(None, job):
            return task.run(*args, **kwargs), job.effects
    finally:
        cast(Any, task).pop_request()


def run_plainly(task: Guarded, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Run the body for the message in hand as Celery would run a plain task's."""
    request = cast(Any, task).request
    with (
        observed_run(task, request.id, args, kwargs),
        running_for(None, PlainJob(task, args, kwargs)),
        in_context(request),
        kept_clean(task.guard.alias),
    ):
        return task.run(*args, **kwargs)
