"""Which jobs a bulk replay is about, and what it would do."""

from __future__ import annotations

import collections
import dataclasses
import time
from typing import Any

from django.db.models import Exists, F, OuterRef, QuerySet, Subquery, Value
from django.db.models.functions import Coalesce, NullIf

from celery_guard.jobs.models import Attempt, Job
from celery_guard.jobs.ranges import next_range
from celery_guard.jobs.states import DEAD_LETTERS
from celery_guard.settle.models import Effect
from celery_guard.settle.states import OPEN

RANGE = 20_000
"""Ids looked through in one statement."""
SHOWN = 10


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which dead letters; empty matches any. ``mark`` is an error's fingerprint, else a reason."""

    task: str = ""
    mark: str = ""
    lane: str = ""
    tenant: str = ""

    def named(self) -> dict[str, str]:
        """What it names."""
        return {name: word for name, word in dataclasses.asdict(self).items() if word}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """What a replay would find now. Where the look took too long, ``whole`` is False: at least so
    many. ``asking`` of the jobs have an effect without an answer and would be left alone."""

    jobs: int
    asking: int
    by_task: dict[str, int]
    newest: list[int]
    whole: bool


def matching(using: str, wanted: Wanted) -> QuerySet[Job, Any]:
    """The dead letters that can still run again."""
    named = wanted.named()
    mark = named.pop("mark", "")
    # A purged one keeps its state and loses its error with its message.
    jobs = Job.objects.using(using).dead_letters().filter(error__isnull=False, **named)
    if not mark:
        return jobs
    ends = Attempt.objects.using(using).filter(job=OuterRef("pk"), outcome__in=DEAD_LETTERS)
    alike = Coalesce(NullIf("fingerprint", Value("")), "reason")
    # By its latest end alone; one that never got to an attempt goes by its own reason.
    latest = Subquery(ends.order_by("-pk").values(mark=alike)[:1])
    return jobs.annotate(mark=Coalesce(latest, F("reason"))).filter(mark=mark)


def asking(using: str) -> Exists:
    """Whether a job has an effect without an answer: it is settled first, then run again."""
    open_ones = Effect.objects.using(using).filter(job=OuterRef("pk"), state__in=OPEN)
    return Exists(open_ones)


def preview(using: str, wanted: Wanted, seconds: float) -> Preview:
    """Count what matches, for at most about ``seconds``; nothing is changed."""
    until = time.monotonic() + seconds
    by_task: collections.Counter[str] = collections.Counter()
    newest: collections.deque[int] = collections.deque(maxlen=SHOWN)
    cursor, questions, whole = 0, 0, True
    while whole and (bounds := next_range(using, cursor, RANGE)) is not None:
        first, cursor = bounds
        found = matching(using, wanted).filter(pk__gte=first, pk__lte=cursor)
        rows = found.annotate(asking=asking(using)).order_by("pk")
        for pk, task, asks in rows.values_list("pk", "task", "asking"):
            by_task[task] += 1
            questions += asks
            newest.append(pk)
        whole = time.monotonic() < until
    return Preview(
        jobs=by_task.total(),
        asking=questions,
        by_task=dict(by_task.most_common()),
        newest=sorted(newest, reverse=True),
        whole=whole,
    )
