"""What the ended runs of a coalesce key say of its requests: which are answered, and when it ran."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from django.db import connections
from django.db.models import OuterRef, QuerySet, Subquery

from celery_guard.jobs.following import SLOT, Key, digest
from celery_guard.jobs.models import Job
from celery_guard.jobs.states import Reason, State

_RAN = (State.SUCCEEDED, State.FAILED, State.DEAD)


def newest_ends(using: str, jobs: Collection[Job]) -> dict[int, datetime]:
    """When a job of the key of each of ``jobs`` ended last; those whose key never ran left out.

    One look-up by index for each of them; on PostgreSQL all in one statement.
    """
    if connections[using].vendor != "postgresql":
        # In one statement MariaDB keeps the answer to a key for all that differ in case alone: it
        # looks up what it has already asked for as it compares texts.
        each = ((job, _ends(_of_key(using, (job.task, str(job.coalesce_key))))) for job in jobs)
        found = [(job.pk, ends.first()) for job, ends in each]
    else:
        same = Job.objects.using(using).filter(
            task=OuterRef("task"), coalesce_key=OuterRef("coalesce_key")
        )
        mine = Job.objects.using(using).filter(pk__in=[job.pk for job in jobs])
        found = list(mine.annotate(end=Subquery(_ends(same)[:1])).values_list("pk", "end"))
    return {pk: end for pk, end in found if end is not None}


def _ends(jobs: QuerySet[Job]) -> QuerySet[Job, datetime | None]:
    ended = jobs.filter(finished_at__isnull=False, state__in=_RAN).order_by("-finished_at")
    return ended.values_list("finished_at", flat=True)


def cover(using: str, key: Key, since: datetime | None) -> int | None:
    """The newest success of ``key`` that began after ``since``."""
    good = _of_key(using, key).filter(
        finished_at__isnull=False, state=State.SUCCEEDED, started_at__gt=since
    )
    return good.order_by("-finished_at").values_list("pk", flat=True).first()


def _of_key(using: str, key: Key) -> QuerySet[Job]:
    task, coalesce_key = key
    rows = Job.objects.using(using).filter(task=task, coalesce_key=coalesce_key)
    if connections[using].vendor == "postgresql":
        return rows
    # Elsewhere texts may be equal that differ in case or accents; what the slot is named by not.
    return rows.alias(slot=SLOT).filter(slot=digest(task, coalesce_key))


def supersede_covered(using: str, *job_ids: int) -> int:
    """End those of ``job_ids`` as superseded whose key had a success that began after they ended.

    They are not run again: their run would follow, and undo, one that saw a later state.
    """
    ended = Job.objects.using(using).filter(pk__in=job_ids, coalesce_key__isnull=False)
    ended = ended.filter(finished_at__isnull=False).exclude(state=State.SUCCEEDED)
    moved = 0
    for job in ended.only("pk", "task", "coalesce_key", "finished_at", "state"):
        key = (job.task, str(job.coalesce_key))
        if (survivor := cover(using, key, job.finished_at)) is not None:
            moved += ended.filter(pk=job.pk, state=job.state).update(
                state=State.SUPERSEDED, reason=Reason.COALESCED, survivor=survivor
            )
    return moved
