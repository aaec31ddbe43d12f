"""Held jobs: put aside until their switch is over, and brought back when it ends sooner.

A held job waits with the switch's expiry as its due time, so it comes back by itself even if
nobody ever looks again. Whoever puts a job aside locks the switches first and finds them still in
force; whoever ends one waits for that lock. So after the end no job is put aside under it any
more, and one pass that brings back what is there brings back all.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from django.apps import apps
from django.db import connections, transaction
from django.db.models import Case, CharField, F, Q, QuerySet, Value, When

from celery_guard.jobs.clock import DatabaseNow
from celery_guard.jobs.models import Job
from celery_guard.jobs.named import NamedJob
from celery_guard.jobs.states import Reason, State

HOLD = "hold"
BACK_AT_ONCE = 2000
"""Jobs that one statement brings back; within it they keep no order."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Switched:
    """A switch as it is applied: an empty ``lane``, ``task`` or ``tenant`` matches any."""

    id: int
    lane: str
    task: str
    tenant: str
    until: datetime
    reason: str = ""

    def covers(self, lane: str, task: str, tenant: str) -> bool:
        """Whether a job of these three is meant."""
        return self.lane in ("", lane) and self.task in ("", task) and self.tenant in ("", tenant)

    def touches(self, lane: str) -> bool:
        """Whether it can mean jobs of ``lane``."""
        return self.lane in ("", lane)

    def closes(self, lane: str) -> bool:
        """Whether it means every job of ``lane``."""
        return self.touches(lane) and not self.task and not self.tenant


def until(holds: Iterable[Switched], lane: str, task: str, tenant: str) -> datetime | None:
    """When the last of ``holds`` that cover such a job is over; None when none does."""
    return max((hold.until for hold in holds if hold.covers(lane, task, tenant)), default=None)


def holds_in_force(using: str) -> list[Switched]:
    """The holds in force, locked to the end of the open transaction."""
    # The table is a higher room's; it is reached by its name.
    rows: Any = apps.get_model("celery_guard", "Switch").objects.using(using)
    found = rows.filter(action=HOLD, ended_at=None, expires_at__gt=DatabaseNow())
    locked = found.order_by("pk").select_for_update()
    return [
        Switched(id=pk, lane=lane, task=task, tenant=tenant, until=expires)
        for pk, lane, task, tenant, expires in locked.values_list(
            "pk", "lane", "task", "tenant", "expires_at"
        )
    ]


def put_aside(jobs: QuerySet[Job], due: datetime) -> int:
    """Put those waiting ``jobs`` aside until ``due``; nothing is used up."""
    return jobs.filter(state=State.WAITING).update(
        sends=Case(When(sent_at__isnull=False, then=F("sends") - 1), default=F("sends")),
        sent_at=None,
        due_at=due,
        # One that asks after an outside call must be known as such when it comes back.
        reason=Case(
            When(reason__in=[Reason.UNCERTAIN, Reason.ECHO], then=F("reason")),
            default=Value(Reason.PAUSED.value),
            output_field=CharField(),
        ),
    )


def step_aside(using: str, job: NamedJob) -> datetime | None:
    """Take back a job whose message arrived while it is held; until when, or None if it is not."""
    ready = Q(sent_at__isnull=False) | Q(due_at__lte=DatabaseNow())
    with transaction.atomic(using=using):
        holds = holds_in_force(using)
        mine = job.row(using).filter(ready, state=State.WAITING)
        found = mine.values_list("lane", "task", "tenant").first()
        due = None if found is None else until(holds, *found)
        return due if due is not None and put_aside(mine, due) else None


def bring_back(using: str, lane: str, held: Sequence[datetime]) -> tuple[int, bool]:
    """Make due now what was put aside in ``lane`` until one of ``held``; one bounded step.

    :return: how many came back, and whether there are more.
    """
    aside = Job.objects.using(using).filter(
        lane=lane, sent_at=None, due_at__in=held, state=State.WAITING
    )
    skips = connections[using].features.has_select_for_update_skip_locked
    with transaction.atomic(using=using):
        rows = aside.order_by("first_due_at", "pk").select_for_update(skip_locked=skips)
        ids = list(rows.values_list("pk", flat=True)[:BACK_AT_ONCE])
        # The clock of the statement, and the same for all of its rows or later for later ones.
        moved = aside.filter(pk__in=ids).update(due_at=DatabaseNow()) if ids else 0
    return moved, aside.exists()
