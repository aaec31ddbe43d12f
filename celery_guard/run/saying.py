"""Says that an attempt began, and how it ended once that is written down: one event each.

They come once a job, so they are told at DEBUG; the numbers of the watch room are made from them.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from celery_guard.events import emit
from celery_guard.run.outcome import (
    Dead,
    Fail,
    Outcome,
    Retry,
    Snooze,
    Stopped,
    Succeeded,
    Uncertain,
)
from celery_guard.run.retry_budget import count_start

if TYPE_CHECKING:
    from celery_guard.run.job import CurrentJob

OUTCOMES: dict[type, str] = {
    Succeeded: "succeeded",
    Retry: "retry",
    Snooze: "snooze",
    Fail: "failed",
    Dead: "dead",
    Stopped: "cancelled",
    Uncertain: "uncertain",
}


def say_began(job: CurrentJob) -> None:
    """The job is claimed; ``waited`` is None but at its first start."""
    count_start(job)
    emit("run.began", logging.DEBUG, **_facts(job), waited=job.claim.waited)


def say_ended(job: CurrentJob, outcome: Outcome) -> None:
    """The end is committed."""
    cause = None if isinstance(outcome, Succeeded) else outcome.cause
    emit(
        "run.ended",
        logging.DEBUG,
        **_facts(job),
        outcome=OUTCOMES[type(outcome)],
        error=None if cause is None else type(cause).__name__,
        seconds=time.monotonic() - job.began,
    )


def _facts(job: CurrentJob) -> dict[str, object]:
    return {
        "job": job.id,
        "task": job.task.name,
        "lane": job.claim.lane,
        "using": job.using,
    }
