"""When to try again, and how often."""

from __future__ import annotations

import itertools
import random
from typing import Any

from celery.app.task import Task as BaseTask
from celery.utils.time import get_exponential_backoff_interval

from celery_guard.conf import guard_settings
from celery_guard.enqueue.declaration import Guarded

RETRY_AFTER_CAP = 3600.0
"""Longest wait, in seconds, that a ``RetryAfter`` may ask for."""


def backoff(task: Guarded, failures: int) -> float:
    """Seconds to wait after the failure that follows ``failures`` earlier ones.

    Celery's own options win where the task sets them; else full jitter, uniform in
    0 … min(cap, base · 2**failures).
    """
    if factor := getattr(task, "retry_backoff", False):
        return float(
            get_exponential_backoff_interval(
                factor=int(max(1.0, factor)),
                retries=min(failures, _STEPS),
                maximum=int(getattr(task, "retry_backoff_max", 600)),
                full_jitter=getattr(task, "retry_jitter", True),
            )
        )
    if (delay := own(task, "default_retry_delay")) is not None:
        return float(delay)
    run = guard_settings().run
    return random.uniform(
        0.0, min(run.backoff_cap, run.backoff_base * 2.0 ** min(failures, _STEPS))
    )


# Far past every cap, and 2.0 ** 64 is still a number.
_STEPS = 64


def budget(task: Guarded) -> int | None:
    """Transient failures after which a job of ``task`` is dead; None for no limit.

    The guard's ``failures`` wins, then Celery's ``max_retries`` where the task sets it (None:
    without limit, as in Celery), then the setting ``run.failures``.
    """
    if task.guard.failures is not None:
        return int(task.guard.failures)
    given = own(task, "max_retries", _UNSET)
    if given is _UNSET:
        return guard_settings().run.failures
    # Celery counts the tries after the first one.
    return None if given is None else int(given) + 1


_UNSET = object()


def own(task: Guarded, option: str, default: Any = None) -> Any:
    """The value of a Celery option that the task or a base class of the site sets itself."""
    places = itertools.takewhile(lambda kind: kind is not BaseTask, type(task).__mro__)
    for place in (task, *places):
        if option in vars(place):
            return vars(place)[option]
    return default
