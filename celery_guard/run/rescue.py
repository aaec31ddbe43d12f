"""Attempts that died: their jobs wait again, or are dead as poison after too many."""

from __future__ import annotations

import logging
import uuid

from celery_guard.conf import guard_settings
from celery_guard.events import emit
from celery_guard.faults import fault_point
from celery_guard.jobs import rescuing, running
from celery_guard.jobs.named import NamedJob
from celery_guard.jobs.rescuing import BATCH, Lost
from celery_guard.jobs.states import Reason, State
from celery_guard.relay.duties import duty
from celery_guard.relay.lead import find_lanes
from celery_guard.run.failure import failure_of

_ROUNDS = 5
"""Most batches of one lane in one sweep, so that a sweep stays short."""


# A worker that dies may die in the midst of this, and its jobs come back a sweep after their
# leases all the same. Two runs pass over each other's rows.
@duty("rescue", every=lambda: guard_settings().sweep.every, alone=False)
def rescue(using: str) -> None:
    """Give back the jobs whose leases are over; a live, heart-beating attempt is not touched."""
    for lane in sorted(find_lanes(using)):
        for _ in range(_ROUNDS):
            found = rescuing.rescue(using, lane, limit=guard_settings().run.lost)
            if found:
                fault_point("run.rescued", *(lost.job_id for lost in found))
            for lost in found:
                _tell(lost)
            if len(found) < BATCH:
                break


def take_from(
    using: str, job: NamedJob, owner: uuid.UUID, *, fence: int | None = None
) -> Lost | None:
    """Give back at once the job of an ``owner`` that is known to be dead; None if it has none."""
    limit = guard_settings().run.lost
    lost = rescuing.lose(using, job, owner, limit=limit, fence=fence)
    if lost is not None:
        fault_point("run.lost", job.id)
        _tell(lost)
    return lost


def end_of(
    using: str, job: NamedJob, owner: uuid.UUID, state: State, reason: Reason, error: BaseException
) -> bool:
    """End the job that ``owner``, known to be dead or dying, runs; False when it runs none."""
    held = rescuing.held_by(using, job, owner)
    failure = failure_of(error)
    if held is None:
        return False
    history = running.History(
        number=held.starts,
        outcome=state,
        reason=reason,
        error=failure.text,
        fingerprint=failure.fingerprint,
        started_at=held.started_at,
    )
    ended = running.end(held.hold, state=state, reason=reason, error=failure.stored(state, reason))
    if ended:
        running.remember(held.hold, history)
    return ended


def _tell(lost: Lost) -> None:
    level = logging.ERROR if lost.state == State.DEAD else logging.WARNING
    emit("run.rescued", level, job=lost.job_id, task=lost.task, state=lost.state)
