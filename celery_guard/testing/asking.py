"""Whether a job was asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from celery_guard.enqueue.declaration import Guarded
from celery_guard.enqueue.key import bind, fingerprint_of
from celery_guard.jobs.models import Job


def assert_enqueued(
    task: Guarded,
    args: Sequence[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    count: int = 1,
) -> list[Job]:
    """Assert that the ledger holds exactly ``count`` jobs of ``task``, and return them.

    They count whether they still wait or have run. A job of a transaction or savepoint that was
    rolled back is not there. Arguments are compared as the key compares them: ``f(1, 2)`` and
    ``f(a=1, b=2)`` are the same call.

    :param args: with ``kwargs``, the call; both None: a call with any arguments.
    :raises AssertionError: naming the jobs of the task that are there.
    """
    jobs = Job.objects.using(task.guard.alias).filter(task=task.name).order_by("pk")
    wanted = jobs
    if args is not None or kwargs is not None:
        bound = bind(task, tuple(args or ()), dict(kwargs or {}))
        wanted = jobs.filter(fingerprint=fingerprint_of(bound))
    found = list(wanted)
    if len(found) != count:
        there = ", ".join(f"{job.key or job.public_id} ({job.state})" for job in jobs[:20])
        raise AssertionError(
            f"{task.name}: {len(found)} such jobs were enqueued, not {count}; "
            f"of this task there are: {there or 'none'}"
        )
    return found
