"""Cancelling a request takes back that one alone, not those that were folded into it.

The newest of them steps in: it waits again in the cancelled one's place, and speaks for the others.
"""

from __future__ import annotations

from django.db import transaction
from django.db.models import Q, QuerySet

from celery_guard.jobs import following, lanes
from celery_guard.jobs.clock import DatabaseNow
from celery_guard.jobs.deadlock import again_on_deadlock
from celery_guard.jobs.models import Job
from celery_guard.jobs.states import Reason, State


def cancel(using: str, waiting: QuerySet[Job]) -> int:
    """End the jobs of ``waiting``, which only holds waiting ones, as cancelled; how many moved."""
    # Somebody may cancel one that was folded into these: it is locked after them here.
    return again_on_deadlock(lambda: _cancel(using, waiting), using=using)


def _cancel(using: str, waiting: QuerySet[Job]) -> int:
    with transaction.atomic(using=using):
        # Locked first, as the fold does: what is read here stays so until the end.
        locked = waiting.filter(coalesce_key__isnull=False).order_by("pk").select_for_update()
        spoke = list(locked.defer("result", "error"))
        moved = waiting.update(
            state=State.CANCELLED,
            reason=Reason.CANCEL,
            sent_at=None,
            due_at=None,
            finished_at=DatabaseNow(),
        )
        for job in spoke:
            step_in(using, job)
        if spoke:
            following.free(using, *(job.pk for job in spoke))
    return moved


def step_in(using: str, gone: Job) -> None:
    """Let the newest request that was folded into ``gone`` wait in its place, due no sooner.

    In the open transaction, which has ended ``gone``; this is the row as it was before.
    """
    folded, echoes = _spoken_for(using, gone)
    found = [rows.order_by("-pk").select_for_update().first() for rows in (folded, echoes)]
    heir = max((job for job in found if job), key=lambda job: job.pk, default=None)
    if heir is None:
        return
    Job.objects.using(using).filter(pk=heir.pk).update(
        state=State.WAITING,
        # Not that it runs, or asks after a call: those are the cancelled job's own.
        reason=Reason.REPLAY if gone.reason in ("", Reason.UNCERTAIN) else gone.reason,
        coalesce_key=gone.coalesce_key,
        survivor=None,
        sent_at=None,
        finished_at=None,
        due_at=gone.due_at or DatabaseNow(),
        # What the group has used up and was promised stays so.
        failures=gone.failures,
        lost=gone.lost,
        expires_at=gone.expires_at,
        **lanes.moved(using, heir, gone),
    )
    for rows in (folded, echoes):
        rows.update(survivor=heir.pk)


def _spoken_for(using: str, gone: Job) -> tuple[QuerySet[Job], QuerySet[Job]]:
    rows = Job.objects.using(using).filter(survivor=gone.pk, task=gone.task, pk__lt=gone.pk)
    folded = rows.filter(
        coalesce_key=gone.coalesce_key,
        finished_at__isnull=False,
        state=State.SUPERSEDED,
        message__isnull=False,
    )
    # Echoes have left the key: the lanes' index ranges of unfinished jobs hold them.
    unfinished = Q(sent_at=None, due_at__isnull=False) | Q(sent_at__isnull=False)
    beside = rows.filter(unfinished, lane__in=lanes.mates(gone.lane))
    return folded, beside.filter(state=State.WAITING, reason=Reason.ECHO)
