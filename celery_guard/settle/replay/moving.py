"""Dead letters move back to waiting, except those about which something has to be known first."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from django.db import connections
from django.db.models import Count, Q

from celery_guard.jobs import adding
from celery_guard.jobs.models import Job
from celery_guard.jobs.states import DEAD_LETTERS, State
from celery_guard.outbox import hook
from celery_guard.settle.replay.choosing import asking
from celery_guard.settle.replay.models import ItemState, ReplayItem, Skipped

AGAIN_MOST = 5
"""Bulk replays that may move one job: what dies every time needs a person."""


def replay(using: str, *job_ids: int) -> int:
    """Move ended, unsuccessful jobs back to waiting, as :func:`celery_guard.jobs.adding.replay`.

    One that has an effect without an answer stays: it is settled first.
    """
    chosen = Job.objects.using(using).filter(~Q(asking(using)), pk__in=job_ids)
    return adding.replay(using, *chosen.values_list("pk", flat=True))


def move(using: str, job_ids: Collection[int], ended_by: datetime) -> dict[int, str]:
    """What became of each of these members of a replay; to be called in a transaction.

    Empty text for those that wait again, else why not. Whoever is missing is locked by somebody
    else just now, and stays to be asked about again.

    :param ended_by: who has ended later has been run again since, and is nobody's member any more.
    """
    jobs = Job.objects.using(using).filter(pk__in=job_ids)
    there = set(jobs.values_list("pk", flat=True))
    skips = connections[using].features.has_select_for_update_skip_locked
    locked = jobs.order_by("pk").select_for_update(skip_locked=skips)
    held = {job.pk: job for job in locked.only("lane", "state", "finished_at", "message_id")}
    questions = set(jobs.filter(asking(using)).values_list("pk", flat=True))
    often = _moved_often(using, held)
    told: dict[int, str] = {pk: Skipped.PURGED for pk in job_ids if pk not in there}
    for pk, job in held.items():
        told[pk] = _obstacle(job, ended_by, asks=pk in questions, often=pk in often)
    going = [pk for pk, why in told.items() if not why]
    adding.replay(using, *going)
    waiting = jobs.filter(pk__in=going, state=State.WAITING)
    moved = set(waiting.values_list("pk", flat=True))
    hook.note(using, *{held[pk].lane for pk in moved})
    return {**told, **{pk: Skipped.SUPERSEDED for pk in going if pk not in moved}}


def _obstacle(job: Job, ended_by: datetime, *, asks: bool, often: bool) -> str:
    if job.state not in DEAD_LETTERS or job.finished_at is None or job.finished_at > ended_by:
        return Skipped.MOVED_ON
    if job.message_id is None:
        return Skipped.PURGED
    if asks:
        return Skipped.EFFECT
    return Skipped.TOO_OFTEN if often else ""


def _moved_often(using: str, job_ids: Collection[int]) -> set[int]:
    items = ReplayItem.objects.using(using).filter(job__in=job_ids, state=ItemState.REPLAYED)
    counted = items.values("job_id").annotate(times=Count("pk"))
    return set(counted.filter(times__gte=AGAIN_MOST).values_list("job_id", flat=True))
