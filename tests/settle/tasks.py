"""Guarded tasks with effects; what they call is set by each test."""

from __future__ import annotations

from typing import Any

from celery_guard import current_job, guarded_task

wanted: dict[str, Any] = {}


@guarded_task(key="effect:{name}", atomic=False, failures=50)
def pay(name: str) -> str:
    """One charge, then the job's end."""
    job = current_job()
    answer = job.effect("charge", **wanted)
    with job.finish():
        pass
    return str(answer.id)


@guarded_task(key="mails:{name}", atomic=False, failures=50)
def mails(name: str, count: int) -> int:
    """One effect per item."""
    job = current_job()
    for n in range(count):
        job.effect("mail", item=str(n), **wanted)
    return count


@guarded_task(key="atomic-effect:{name}")
def wrong_style(name: str) -> None:
    """An effect where a rollback could not undo it."""
    job = current_job()
    job.effect("charge", **wanted)


@guarded_task(key="letters:{name}", atomic=False, failures=50)
def letters(name: str) -> None:
    """One effect for each of the items that the test wants."""
    options = dict(wanted)
    for item in options.pop("items"):
        current_job().effect(options.pop("name", "letter"), item=item, **options)
