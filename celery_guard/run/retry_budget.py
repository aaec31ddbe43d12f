"""The retry budget: retries are a bounded part of what begins, or they wait longer.

When something is down, everything that calls it fails and is tried again, on top of what arrives
anyway. Past a share of the starts of the last minute a retry therefore waits four times as long. It
is never failed for that: the job has done nothing wrong. The rule is that of Finagle's and of
Envoy's retry budgets; the window is counted exactly (:mod:`celery_guard.run.retry_window`).
"""

from __future__ import annotations

import dataclasses
import logging
from datetime import datetime
from typing import TYPE_CHECKING

from celery.exceptions import Retry as CeleryRetry

from celery_guard.conf import guard_settings
from celery_guard.events import emit
from celery_guard.jobs.states import Reason
from celery_guard.run import retry_window
from celery_guard.run.outcome import Retry

if TYPE_CHECKING:
    from celery_guard.run.job import CurrentJob

LONGER = 4
"""By so much a retry past the budget waits longer."""


def resource_of(job: CurrentJob) -> str:
    """What the retries of ``job`` would wear out: its task's dependency, else the task itself."""
    name = job.task.guard.dependency
    return f"dependency:{name}" if name else f"task:{job.task.name}"


def count_start(job: CurrentJob) -> None:
    """An attempt begins."""
    if guard_settings().run.retry_share:
        retry_window.starts.count(job.using, resource_of(job))


def within_budget(job: CurrentJob, retry: Retry) -> Retry:
    """``retry``, or the same later where the resource has had its share of retries.

    A time that the task names as an instant stays: it means that time. Nothing changes in eager
    mode, which does not wait.
    """
    run = guard_settings().run
    if not run.retry_share or job.request.is_eager:
        return retry
    lately = retry_window.add_retry(job.using, resource_of(job))
    allowed = max(run.retry_least, run.retry_share * lately.starts)
    if lately.retries <= allowed or isinstance(retry.due, datetime):
        return retry
    due = max(retry.due, min(LONGER * retry.due, run.backoff_cap), run.backoff_base)
    emit(
        "run.retry_put_off",
        logging.INFO,
        job=job.id,
        task=job.task.name,
        dependency=job.task.guard.dependency or "",
        using=job.using,
        seconds=due,
        starts=lately.starts,
        retries=lately.retries,
    )
    if isinstance(retry.tell, CeleryRetry):
        # What Celery shows; the row decides.
        retry.tell.when = due  # type: ignore[assignment]
    return dataclasses.replace(retry, due=due, reason=Reason.RETRY_BUDGET)
