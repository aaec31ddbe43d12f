"""Time for tests: only the database's clock decides, so time passes when the rows grow older."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db.models import DateTimeField, ExpressionWrapper, F, Min, Value

from celery_guard.jobs.clock import DatabaseNow
from celery_guard.jobs.models import Job
from celery_guard.jobs.states import State
from celery_guard.settle.models import Effect
from celery_guard.settle.states import OPEN, EffectState

_JOB = ("created_at", "first_due_at", "due_at", "max_due_at", "expires_at", "sent_at")
_RUN = ("started_at", "finished_at")
_EFFECT = ("created_at", "sent_at", "key_until", "look_at")


def skip_to_next(using: str) -> bool:
    """Let time pass until the next job is due or the next provider is to be asked.

    False when nothing waits for a time.
    """
    waiting = Job.objects.using(using).filter(state=State.WAITING, sent_at=None)
    asked = Effect.objects.using(using).filter(
        state=EffectState.UNKNOWN, job__state=State.RECONCILING
    )
    times = [_first(waiting, "due_at"), _first(asked, "look_at")]
    gaps = [at - now for at, now in times if at is not None]
    if not gaps:
        return False
    pass_time(using, max(0.0, min(gaps).total_seconds()) + 0.001)
    return True


def _first(rows: Any, column: str) -> tuple[datetime | None, datetime]:
    found = rows.aggregate(first=Min(column), now=Min(DatabaseNow()))
    return found["first"], found["now"]


def pass_time(using: str, seconds: float) -> None:
    """Make every open job and effect ``seconds`` older, and the runs of coalesced ones."""
    jobs = Job.objects.using(using).filter(due_at__isnull=False)
    jobs.update(**_older(_JOB, seconds))
    # A period counts from the end of a run, and what a run has covered from its start.
    ran = Job.objects.using(using).filter(coalesce_key__isnull=False, started_at__isnull=False)
    ran.update(**_older(_RUN, seconds))
    Effect.objects.using(using).filter(state__in=(*OPEN, EffectState.PREPARED)).update(
        **_older(_EFFECT, seconds)
    )


def _older(columns: Sequence[str], seconds: float) -> dict[str, Any]:
    gone = Value(timedelta(seconds=seconds))
    return {
        name: ExpressionWrapper(F(name) - gone, output_field=DateTimeField()) for name in columns
    }
