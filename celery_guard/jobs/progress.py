"""What a running attempt says of its job and hears of it: progress, checkpoints, cancel requests.

All of it is fenced: what an attempt says that has lost its job changes nothing.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Collection, Mapping
from datetime import datetime

from django.db import connections, transaction
from django.db.models import QuerySet

from celery_guard.jobs.models import Job
from celery_guard.jobs.running import Hold
from celery_guard.jobs.states import State


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """``done`` of ``total`` (None: nobody knows of how many), by the attempt with ``fence``."""

    fence: int
    done: int
    total: int | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A job that is still held: when a cancel was asked for, and the leases it lost before."""

    cancel_asked_at: datetime | None
    lost: int


def report(using: str, owner: uuid.UUID, told: Mapping[int, Told]) -> None:
    """Keep the progress of the jobs in ``told`` that ``owner`` still holds.

    A row that somebody has locked is passed over: it is just ending, and the leases of other jobs
    hang on whoever reports.
    """
    mine = _held(using, owner).filter(pk__in=told)
    skip = connections[using].features.has_select_for_update_skip_locked
    with transaction.atomic(using=using):
        free = mine.select_for_update(skip_locked=skip).order_by("pk")
        for pk, fence in list(free.values_list("pk", "fence")):
            now = told[pk]
            if fence == now.fence:
                mine.filter(pk=pk, fence=fence).update(done=now.done, total=now.total)


def asked_to_stop(using: str, owner: uuid.UUID, job_ids: Collection[int]) -> set[int]:
    """Those of ``owner``'s jobs that somebody wants cancelled."""
    asked = _held(using, owner).filter(pk__in=job_ids, cancel_asked_at__isnull=False)
    return set(asked.values_list("pk", flat=True))


def look_in(hold: Hold) -> Standing | None:
    """How the held job stands; None when it is no longer held here."""
    row = _of(hold).values("cancel_asked_at", "lost").first()
    return Standing(**row) if row else None


def forgive(hold: Hold) -> bool:
    """It has made progress: the leases it lost before count no more. False when not held."""
    return _of(hold).update(lost=0) == 1


def _of(hold: Hold) -> QuerySet[Job]:
    return _held(hold.using, hold.owner).filter(pk=hold.job_id, fence=hold.fence)


def _held(using: str, owner: uuid.UUID) -> QuerySet[Job]:
    return Job.objects.using(using).filter(owner=owner, state=State.RUNNING)
