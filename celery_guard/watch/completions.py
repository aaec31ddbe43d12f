"""Counts the jobs that end in this worker, as Celery's signals tell of them."""

from __future__ import annotations

from typing import Any

from celery.signals import (
    task_postrun,
    worker_init,
    worker_process_shutdown,
    worker_shutdown,
)
from celery.states import FAILURE, SUCCESS

from celery_guard.conf import guard_settings
from celery_guard.watch.counters import COMPLETIONS, series_tally, tally


@task_postrun.connect(weak=False, dispatch_uid="celery_guard.watch.completions")
def count_completion(task: Any = None, state: str | None = None, **_: object) -> None:
    """Count a guarded task that has ended: succeeded or failed, not one that is tried again."""
    guard = getattr(task, "guard", None)
    if guard is None or task.request.is_eager or state not in (SUCCESS, FAILURE):
        return
    queue = (task.request.delivery_info or {}).get("routing_key")
    lane = guard_settings().lane_of_queue(queue).name if queue else guard.lane
    tally.count(guard.alias, COMPLETIONS, lane)


@worker_init.connect(weak=False, dispatch_uid="celery_guard.watch.keep_time")
def keep_time(**_: object) -> None:
    """In a worker, and in all that it forks, counts are added every few seconds."""
    tally.timed = series_tally.timed = True


@worker_process_shutdown.connect(weak=False, dispatch_uid="celery_guard.watch.last_counts")
@worker_shutdown.connect(weak=False, dispatch_uid="celery_guard.watch.last_counts")
def flush_last_counts(**_: object) -> None:
    """Add what is left when a pool process or the worker ends."""
    tally.flush()
    series_tally.flush()
