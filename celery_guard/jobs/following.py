"""Followers: requests of a coalesce key that wait until the key's running job has ended."""

from __future__ import annotations

import hashlib

from django.db import connections, transaction
from django.db.models import Case, CharField, QuerySet, Value, When
from django.db.models.functions import SHA256, Concat

from celery_guard.jobs.clock import DatabaseNow, in_seconds
from celery_guard.jobs.models import Job
from celery_guard.jobs.named import NamedJob
from celery_guard.jobs.states import TERMINAL, Reason, State

LOOK_AGAIN = 5.0
"""Seconds after which a follower is looked at again though nobody freed it."""

Key = tuple[str, str]
"""A task's name and a coalesce key: what the requests of a group have in common."""

# Asked for by name: Django's concatenation takes NULL for an empty text.
SLOT = Case(
    When(
        coalesce_key__isnull=False,
        then=SHA256(Concat("task", Value("\n"), "coalesce_key", output_field=CharField())),
    ),
    default=None,
)
"""What ``running_key`` holds while a job of the key runs; NULL where there is no coalesce key."""


def digest(task: str, coalesce_key: str) -> str:
    """The same, worked out here."""
    return hashlib.sha256(f"{task}\n{coalesce_key}".encode()).hexdigest()


def live(using: str, keys: set[Key]) -> QuerySet[Job]:
    """The jobs of ``keys`` that have not ended, and perhaps a few of other keys.

    The pairs are not matched as pairs, and a database may compare without regard to case: the
    caller drops what is not in ``keys``.
    """
    return Job.objects.using(using).filter(
        coalesce_key__in={key for _, key in keys},
        task__in={task for task, _ in keys},
        finished_at=None,
    )


def free(using: str, *job_ids: int) -> int:
    """Make the followers of jobs that ended due now; return how many there were.

    One a key is enough: the release looks at the whole key. A row that somebody holds is left
    out, so that the end of a job never waits for anybody; such a row looks again by itself.
    """
    ended = Job.objects.using(using).filter(pk__in=job_ids, coalesce_key__isnull=False)
    keys = {(task, str(key)) for task, key in ended.values_list("task", "coalesce_key")}
    return _free(using, keys) if keys else 0


def _free(using: str, keys: set[Key]) -> int:
    skips = connections[using].features.has_select_for_update_skip_locked
    waiting = live(using, keys).filter(
        state=State.WAITING, sent_at=None, reason=Reason.FOLLOWER, due_at__gt=DatabaseNow()
    )
    named = waiting.order_by("pk").values_list("pk", "task", "coalesce_key")
    if not (pks := [pk for pk, task, key in named if (task, key) in keys]):
        return 0
    with transaction.atomic(using=using):
        # By their numbers: MariaDB also locks what it passes over on its way along another index, and
        # those are the other requests of the key.
        jobs = Job.objects.using(using).filter(pk__in=pks)
        rows = jobs.order_by("pk").select_for_update(skip_locked=skips)
        found = list(rows.values_list("pk", flat=True))
        mine = jobs.filter(pk__in=found, state=State.WAITING, sent_at=None, reason=Reason.FOLLOWER)
        return mine.update(due_at=DatabaseNow()) if found else 0


def answering(using: str, job: Job) -> Job:
    """The job whose run answers ``job``: itself, or the last of those that took its place.

    A link that has been purged ends the search.
    """
    while job.survivor_id is not None and job.state not in _OWN_ENDS:
        survivor = Job.objects.using(using).filter(pk=job.survivor_id).first()
        if survivor is None:
            break
        job = survivor
    return job


_OWN_ENDS = frozenset(TERMINAL) - {State.SUPERSEDED}


def step_back(using: str, job: NamedJob) -> bool:
    """Make a job that found its key's slot taken a follower; False if it has no coalesce key."""
    coalesced = job.row(using).filter(coalesce_key__isnull=False)
    if not coalesced.exists():
        return False
    coalesced.filter(state=State.WAITING).update(
        sent_at=None, reason=Reason.FOLLOWER, due_at=in_seconds(LOOK_AGAIN)
    )
    return True
