"""Set a task's stage while the site runs, and end what was set."""

from __future__ import annotations

from collections.abc import Collection

from django.db import transaction

from celery_guard.conf.modes import parse_stage
from celery_guard.enqueue.rollout.models import TaskMode
from celery_guard.enqueue.rollout.reading import OWN, forget
from celery_guard.enqueue.steering.terms import WORDS, missing, time_faults, too_long
from celery_guard.events import emit
from celery_guard.jobs.clock import DatabaseNow, in_seconds

LONGEST = 90 * 86400.0
"""Longest time that a stage set at run time counts, in seconds: the last word is the settings'."""
_LENGTHS = {"task": 255, **WORDS}


def set_stage(
    using: str, *, task: str, stage: str, reason: str, author: str, seconds: float
) -> TaskMode:
    """Let ``stage`` ("off", "canary:10", "on", …) count for ``task``, from now for ``seconds``.

    It takes the place of what was set before.

    :raises ValueError: naming every fault; nothing was written.
    """
    words = {"task": task.strip(), "reason": reason.strip(), "author": author.strip()}
    if faults := _faults(stage, seconds, words):
        raise ValueError("; ".join(faults))
    parsed = parse_stage(stage)
    with transaction.atomic(using=using):
        _end(using, words["author"], task=words["task"])
        row: TaskMode = TaskMode.objects.using(using).create(
            mode=parsed.mode.value,
            percent=parsed.percent,
            created_at=DatabaseNow(),
            expires_at=in_seconds(seconds),
            **words,
        )
    row.refresh_from_db(using=using)
    forget()
    emit("enqueue.mode_set", task=row.task, stage=str(parsed), by=author, until=str(row.expires_at))
    return row


def _faults(stage: str, seconds: float, words: dict[str, str]) -> list[str]:
    faults = [*missing(words, _LENGTHS), *too_long(words, _LENGTHS)]
    if words["task"].startswith(OWN):
        faults.append("the toolkit's own tasks are always on")
    try:
        parse_stage(stage)
    except ValueError as error:
        faults.append(f"the mode {error}, not {stage!r}")
    return [*faults, *time_faults(seconds, LONGEST)]


def end_stages(using: str, tasks: Collection[str], *, by: str) -> list[str]:
    """End what is set for ``tasks``; return those for which something was: the settings count."""
    ended = [task for task in sorted(tasks) if _end(using, by, task=task)]
    forget()
    for task in ended:
        emit("enqueue.mode_ended", task=task, by=by)
    return ended


def _end(using: str, by: str, *, task: str) -> int:
    return TaskMode.objects.using(using).filter(task=task).end(by)
