"""New rows of the ledger, and the rows that are already there."""

from __future__ import annotations

import dataclasses
import uuid
from datetime import datetime
from typing import Any

from django.db.models import F, Value
from django.db.models.expressions import Combinable
from django.db.models.functions import Greatest

from celery_guard.conf.modes import Mode
from celery_guard.jobs import covering, unfolding
from celery_guard.jobs.clock import DatabaseNow, Instant, in_seconds
from celery_guard.jobs.models import Job
from celery_guard.jobs.states import RERUNNABLE, Reason, State


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NewJob:
    """What a new row starts with.

    It is due ``delay`` seconds from now on the database's clock, or at ``due_at`` where that is
    later; ``expires_in`` counts on the same clock and gives way to ``expires_at``. ``max_delay`` is
    the most seconds that later requests of the same ``coalesce_key`` may put it off.
    """

    task: str
    lane: str
    public_id: uuid.UUID
    key: str | None = None
    fingerprint: str = ""
    tenant: str = ""
    dependency: str = ""
    coalesce_key: str | None = None
    reason: str = Reason.NEW
    plain: bool = False
    awaited: bool = False
    delay: float = 0.0
    due_at: datetime | None = None
    expires_at: datetime | None = None
    expires_in: float | None = None
    survivor_id: int | None = None
    max_delay: float | None = None
    mode: str = Mode.ON


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class KnownJob:
    """What an enqueue needs to know of the row that is already there.

    ``envelope`` is that of its current message, None when the payload has been purged.
    """

    id: int
    public_id: uuid.UUID
    task: str
    state: str
    fingerprint: str
    envelope: str | None


def public_id_of(task_id: str) -> uuid.UUID:
    """The public id of the job whose Celery task id is ``task_id``.

    Celery's own ids are random UUIDs and are taken as they are; any other text maps to one
    name-based UUID, so that a task id always finds its job.
    """
    text = str(task_id)
    try:
        return uuid.UUID(text)
    except ValueError:
        return uuid.uuid5(uuid.NAMESPACE_OID, text)


def find_known(using: str, new: NewJob) -> KnownJob | None:
    """The job that has ``new``'s key, or else its public id."""
    # Two look-ups by one index each: an OR of both can make a planner read the whole table.
    by_key = _known(using, task=new.task, key=new.key) if new.key is not None else None
    return by_key or _known(using, public_id=new.public_id)


def _known(using: str, **same: object) -> KnownJob | None:
    names = ("id", "public_id", "task", "state", "fingerprint")
    rows = Job.objects.using(using).filter(**same).values_list(*names, "message__envelope")
    row = next(iter(rows[:1]), None)
    return KnownJob(**dict(zip((*names, "envelope"), row, strict=True))) if row else None


def rerun(using: str, job_id: int, new: NewJob, message_id: int) -> bool:
    """Move an ended, unsuccessful job back to waiting for the call that ``new`` describes.

    Same row, key and history, but with the call's own message, times and lane. False when the
    job is not (or no longer) in a state to run again.
    """
    due = due_of(new)
    jobs = Job.objects.using(using).filter(pk=job_id, state__in=RERUNNABLE)
    return bool(
        jobs.update(
            **_ANEW,
            message=message_id,
            lane=new.lane,
            tenant=new.tenant,
            dependency=new.dependency,
            awaited=new.awaited,
            mode=new.mode,
            reason=Reason.REPLAY,
            due_at=due,
            first_due_at=due,
            expires_at=expires_of(new),
        )
    )


def due_of(new: NewJob) -> Combinable:
    """When ``new`` is due, by the database's clock; a time in the past is now."""
    soonest = in_seconds(new.delay)
    if new.due_at is None:
        return soonest
    return Greatest(Instant(new.due_at), soonest)


def expires_of(new: NewJob) -> Combinable | None:
    """When ``new`` expires, by the database's clock; None for never."""
    if new.expires_at is not None:
        return Instant(new.expires_at)
    return None if new.expires_in is None else in_seconds(new.expires_in)


def replay(using: str, *job_ids: int, reason: str = Reason.REPLAY) -> int:
    """Move ended, unsuccessful jobs back to waiting, due now; return how many moved.

    Same row, key and history; budgets start anew. A job whose message has been purged stays. One
    whose coalesce key has had a newer success ends superseded instead, and is not counted.
    """
    covering.supersede_covered(using, *job_ids)
    now = DatabaseNow()
    return (
        Job.objects.using(using)
        .filter(pk__in=job_ids, state__in=RERUNNABLE, message__isnull=False)
        .update(**_ANEW, reason=reason, due_at=now, first_due_at=now, expires_at=None)
    )


_ANEW: dict[str, Any] = {
    "state": State.WAITING,
    "finished_at": None,
    "answered_at": None,
    "answers": 0,
    "failures": 0,
    "lost": 0,
    # What was sent so far counts as answered: how long to wait before sending again goes by
    # sends − starts, and starts is never taken back.
    "sends": F("starts"),
    "error": None,
    "cancel_asked_at": None,
    "done": None,
    "total": None,
    # Whoever still holds an old attempt is fenced off.
    "fence": F("fence") + Value(1),
}


def cancel(using: str, *job_ids: int) -> int:
    """End waiting jobs as cancelled; return how many moved."""
    waiting = Job.objects.using(using).filter(pk__in=job_ids, state=State.WAITING)
    return unfolding.cancel(using, waiting)
