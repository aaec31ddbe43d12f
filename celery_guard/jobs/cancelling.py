"""Cancelling: at once while a job waits, by asking while it runs.

Who runs the job learns of it from a heartbeat, a progress report or a checkpoint. An attempt that
ends in waiting again (a retry, a snooze, a lost lease) is cancelled there and then.
"""

from __future__ import annotations

import uuid
from typing import Literal

from django.db.models.functions import Coalesce

from celery_guard.jobs import unfolding
from celery_guard.jobs.clock import DatabaseNow
from celery_guard.jobs.models import Job
from celery_guard.jobs.states import State

Answer = Literal["cancelled", "asked", "over"]

_ROUNDS = 3


def ask(using: str, public_id: uuid.UUID) -> Answer:
    """Cancel a waiting job, or ask whoever runs it to stop; ``"over"`` when it has ended."""
    jobs = Job.objects.using(using).filter(public_id=public_id)
    job_id = jobs.values_list("pk", flat=True).first()
    if job_id is None:
        return "over"
    # A claim or a retry may come between the two looks, and then again.
    for _ in range(_ROUNDS):
        if _end_waiting(using, job_id):
            return "cancelled"
        held = jobs.filter(state__in=(State.RUNNING, State.RECONCILING))
        if held.update(cancel_asked_at=Coalesce("cancel_asked_at", DatabaseNow())):
            return "asked"
    return "over"


def honour(using: str, job_id: int) -> bool:
    """Cancel a job that waits again although it was asked to stop, in the open transaction."""
    return _end_waiting(using, job_id, cancel_asked_at__isnull=False)


def _end_waiting(using: str, job_id: int, **only: bool) -> bool:
    waiting = Job.objects.using(using).filter(pk=job_id, state=State.WAITING, **only)
    return unfolding.cancel(using, waiting) == 1
