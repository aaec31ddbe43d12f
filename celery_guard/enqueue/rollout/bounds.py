"""The bounds of the fallback: a slot and a token of its rate, exact over all processes.

Whoever takes a slot locks the one gate first, so that slots are counted by one at a time. A slot
that is over is ended before it counts as free: if its holder is just lengthening it, that is
waited for.
"""

from __future__ import annotations

import dataclasses
import socket
import uuid
from datetime import timedelta
from typing import Any

from django.db import connections, transaction
from django.db.models import DateTimeField, Q, QuerySet, Value
from django.db.models.expressions import ExpressionWrapper
from django.db.models.functions import Coalesce, Greatest

from celery_guard.conf import guard_settings
from celery_guard.enqueue.admission.models import Gate
from celery_guard.enqueue.request import retried
from celery_guard.enqueue.rollout.models import Fallback
from celery_guard.errors import KeyBusy
from celery_guard.jobs.clock import DatabaseNow, in_seconds

SCOPE = "fallback"
"""The name of the gate."""
CONCURRENCY, RATE = "rollout.fallback.concurrency", "rollout.fallback.rate"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """No slot: the setting that says so, and seconds after which there may be one."""

    limit: str
    wait: float


def take(using: str, *, task: str, lane: str) -> int | Spent:
    """The id of a slot, committed; or what is used up. Called outside any transaction."""
    # First without the lock: while all is used up, most go away here.
    alive = _held(using).filter(until__gt=DatabaseNow())
    return _spent(using, alive) or _take(using, task, lane)


def _take(using: str, task: str, lane: str) -> int | Spent:
    new = Gate(scope=SCOPE)
    Gate.objects.using(using).bulk_create([new], ignore_conflicts=True)
    try:
        return retried([using], lambda: _take_locked(using, task, lane))
    except KeyBusy:
        # Held by a process that is frozen: what can't be counted must not begin.
        return Spent(limit=CONCURRENCY, wait=guard_settings().rollout.fallback.time)


def _take_locked(using: str, task: str, lane: str) -> int | Spent:
    with transaction.atomic(using=using):
        _limit_patience(using)
        gate = Gate.objects.using(using).filter(scope=SCOPE)
        if not gate.select_for_update().values_list("pk"):
            # It was idle, and has just been removed.
            return Spent(limit=CONCURRENCY, wait=1.0)
        over = _held(using).filter(until__lte=DatabaseNow())
        over.update(ended_at=DatabaseNow(), outcome=Fallback.LOST)
        if (spent := _spent(using, _held(using))) is not None:
            return spent
        gate.update(next_at=_next(), counted_at=DatabaseNow())
        return _write(using, task, lane)


def _write(using: str, task: str, lane: str) -> int:
    row = Fallback(
        task=task,
        lane=lane,
        host=socket.gethostname()[:255],
        began_at=DatabaseNow(),
        until=in_seconds(guard_settings().rollout.fallback.lease),
    )
    row.save(using=using, force_insert=True)
    return int(row.pk)


def _spent(using: str, held: QuerySet[Fallback]) -> Spent | None:
    bound = guard_settings().rollout.fallback
    if held.count() >= bound.concurrency:
        return Spent(limit=CONCURRENCY, wait=bound.time)
    if bound.rate is None:
        return None
    gate: Any = Gate.objects.using(using).filter(scope=SCOPE).annotate(now=DatabaseNow()).first()
    if gate is None or gate.next_at is None:
        return None
    slack = bound.rate.interval * (bound.burst - 1)
    early = (gate.next_at - gate.now).total_seconds() - slack
    return Spent(limit=RATE, wait=early) if early > 0 else None


def _next() -> ExpressionWrapper[Any] | None:
    rate = guard_settings().rollout.fallback.rate
    if rate is None:
        return None
    start = Greatest(Coalesce("next_at", DatabaseNow()), DatabaseNow())
    step = Value(timedelta(seconds=rate.interval))
    return ExpressionWrapper(start + step, output_field=DateTimeField())


def _limit_patience(using: str) -> None:
    # Elsewhere the database's own lock time-out holds.
    if connections[using].vendor == "postgresql":
        patience = f"{guard_settings().rollout.fallback.time:.3f}s"
        with connections[using].cursor() as cursor:
            cursor.execute("SELECT set_config('lock_timeout', %s, true)", [patience])


def _held(using: str, slot: int | None = None) -> QuerySet[Fallback]:
    mine = Q() if slot is None else Q(pk=slot)
    return Fallback.objects.using(using).filter(mine, ended_at=None)


def keep(using: str, slot: int, job: uuid.UUID) -> bool:
    """Hold the slot for ``job`` for a lease from now; False when somebody else may have it.

    Called in the transaction that claims the job: so no more jobs are held than there are slots.
    """
    until = in_seconds(guard_settings().rollout.fallback.lease)
    return _held(using, slot).update(job=job, until=until) == 1


def give_back(using: str, slot: int, outcome: str) -> bool:
    """Free the slot, and say what came of it; False when it was over."""
    ended = {"ended_at": DatabaseNow(), "outcome": outcome[:12]}
    return _held(using, slot).update(**ended) == 1


def forget_old(using: str) -> int:
    """Remove uses that ended longer ago than unsuccessful jobs are kept; return how many."""
    before = in_seconds(-guard_settings().retention.failed)
    old = Fallback.objects.using(using).filter(ended_at__lt=before).order_by("ended_at")
    ids = list(old.values_list("pk", flat=True)[:5000])
    return Fallback.objects.using(using).filter(pk__in=ids).delete()[0] if ids else 0
