"""What the guard would have done with the calls of a task that runs as a plain one.

Nothing is changed for the task. Each call leaves a row, judged by the rows before it: at once
where no transaction is open, else after the commit; one that is rolled back would have made no job. What can't
be read or written is left out and told, never raised.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import logging
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

from django.db import Error as DatabaseError
from django.db import connections, transaction
from django.db.models import BooleanField, ExpressionWrapper, Min, Q, QuerySet

from celery_guard.conf import Mode, guard_settings
from celery_guard.enqueue.admission.limits import Cap, caps_of
from celery_guard.enqueue.admission.measured import measured
from celery_guard.enqueue.admission.pressure import limit_name, strains
from celery_guard.enqueue.call import in_event_loop
from celery_guard.enqueue.declaration import Guarded
from celery_guard.enqueue.faithful import check_faithful
from celery_guard.enqueue.request import identity_of
from celery_guard.enqueue.rollout.differing import Difference, keep
from celery_guard.enqueue.rollout.models import Observed
from celery_guard.enqueue.rollout.reading import stage_of
from celery_guard.errors import EnqueueError
from celery_guard.events import emit
from celery_guard.jobs.adding import public_id_of
from celery_guard.jobs.clock import DatabaseNow, in_seconds

KEPT = 86400.0
"""Seconds for which a call is remembered."""
ALIVE = 3600.0
"""Seconds after which a call that has not ended counts as gone: its message or worker was lost."""
_LONGEST = {"task": 255, "lane": 64}
_STEP, _ROUNDS = 2000, 50
"""Most rows removed in one statement, and statements in one purge."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Would:
    """What the guard would have done; ``reason`` says why, and is empty for what it would take."""

    decision: str
    reason: str = ""


def saw_call(
    task: Guarded,
    task_id: str,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    queue: Any = None,
    ran: bool = False,
) -> None:
    """Note a plain call, and what the guard would have done with it.

    :param queue: the queue it names, if it names one.
    :param ran: its body runs in the open transaction, and has ended when that is committed.
    """
    settings = guard_settings()
    named = str(getattr(queue, "name", queue) or "")
    lane = settings.lane_of_queue(named) if named else settings.lane(task.guard.lane)
    try:
        check_faithful(task.name, args, kwargs)
        identity = identity_of(task, args, kwargs)
    except (EnqueueError, TypeError) as error:
        _tell(task.name, lane.name, Would(decision="refuse", reason=type(error).__name__))
        return
    row = Observed(
        public_id=public_id_of(task_id),
        task=task.name[: _LONGEST["task"]],
        lane=lane.name[: _LONGEST["lane"]],
        dependency=task.guard.dependency,
        **identity,
    )
    if ran:
        row.started_at = row.ended_at = DatabaseNow()
    using = task.guard.alias
    note = functools.partial(_quietly, using, functools.partial(_note, using, row))
    connection = connections[using]
    if connection.in_atomic_block:
        transaction.on_commit(note, using=using, robust=True)
    elif connection.get_autocommit():
        note()


@contextlib.contextmanager
def observed_run(
    task: Guarded, task_id: str, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Iterator[None]:
    """Note that a plain body begins, and that it has ended, if its task is observed."""
    using = task.guard.alias
    if in_event_loop() or stage_of(task).mode is not Mode.OBSERVE:
        yield
        return
    if connections[using].in_atomic_block:
        saw_call(task, task_id, args, kwargs, ran=True)
        yield
        return
    mine = Observed.objects.using(using).filter(public_id=public_id_of(task_id))

    def begin() -> None:
        if not mine.exists():
            saw_call(task, task_id, args, kwargs)
        _begin(using, mine)

    _quietly(using, begin)
    try:
        yield
    finally:
        _quietly(using, lambda: mine.update(ended_at=DatabaseNow()))


def forget_old(using: str) -> int:
    """Remove calls that were seen longer ago than a day; return how many."""
    return sum(itertools.takewhile(bool, (_forget_some(using) for _ in range(_ROUNDS))))


def _forget_some(using: str) -> int:
    # Ids grow with time, so the oldest rows are at the head, and nothing beyond it is looked at.
    calls = Observed.objects.using(using)
    is_old = ExpressionWrapper(Q(asked_at__lt=in_seconds(-KEPT)), output_field=BooleanField())
    head = calls.annotate(is_old=is_old).order_by("pk").values_list("pk", "is_old")[:_STEP]
    ids = [pk for pk, old in head if old]
    return calls.filter(pk__in=ids).delete()[0] if ids else 0


def _quietly(using: str, work: Any) -> None:
    try:
        work()
    except DatabaseError as error:
        emit("enqueue.observe_blind", logging.WARNING, using=using, error=str(error).strip())


def _note(using: str, row: Observed) -> None:
    calls = Observed.objects.using(using)
    if calls.filter(public_id=row.public_id).exists():
        # Celery's own retry: the guard would have kept it in the same row.
        return
    would = _repeats(calls, row) or _full(using, row) or Would(decision="accept")
    row.taken = would.decision == "accept"
    row.asked_at = DatabaseNow()
    calls.bulk_create([row], ignore_conflicts=True)
    _tell(row.task, row.lane, would)
    if would.reason:
        _keep(using, row, would)


def _repeats(calls: QuerySet[Observed], row: Observed) -> Would | None:
    mine = calls.filter(task=row.task, taken=True)
    if row.key is not None:
        first = mine.filter(key=row.key).order_by("pk").values_list("fingerprint").first()
        if first is not None:
            same = first[0] == row.fingerprint
            return (
                Would(decision="return", reason="duplicate")
                if same
                else Would(decision="refuse", reason="KeyConflict")
            )
    if row.coalesce_key is not None and _waiting(mine.filter(coalesce_key=row.coalesce_key)):
        return Would(decision="fold", reason="coalesced")
    return None


def _waiting(calls: QuerySet[Observed]) -> int:
    return _alive(calls).filter(started_at=None).count()


def _alive(calls: QuerySet[Observed]) -> QuerySet[Observed]:
    return calls.filter(taken=True, ended_at=None, asked_at__gt=in_seconds(-ALIVE))


def _full(using: str, row: Observed) -> Would | None:
    lane, lanes = guard_settings().lane(row.lane), measured(using)
    here = Observed.objects.using(using).filter(lane=row.lane)
    for cap in caps_of(lane, row.tenant):
        if (reason := _past(using, cap, here)) is not None:
            return Would(decision="refuse", reason=reason)
    if lane.admission.age is not None and _age(here) >= lane.admission.age:
        return Would(decision="refuse", reason=limit_name(lane.name, "age"))
    heaviest = max(strains(using, lane, lanes), key=lambda s: s.pressure, default=None)
    if heaviest is not None and heaviest.pressure >= 1:
        return Would(decision="refuse", reason=heaviest.limit)
    return None


def _past(using: str, cap: Cap, here: QuerySet[Observed]) -> str | None:
    """The setting that the calls seen so far have reached; jobs of other tasks are not counted."""
    calls = Observed.objects.using(using).filter(tenant=cap.tenant) if cap.tenant else here
    if cap.most is not None and _waiting(calls) >= cap.most:
        return "tenants.waiting" if cap.tenant else limit_name(cap.lane, "depth")
    running = _alive(calls).filter(started_at__isnull=False)
    if cap.running is not None and running.count() >= cap.running:
        return "tenants.running"
    if cap.step:
        burst = round(cap.slack / cap.step) + 1
        since = in_seconds(-cap.step * burst)
        recent = calls.filter(taken=True, asked_at__gt=since).count()
        if recent >= burst:
            return "tenants.rate"
    return None


def _age(calls: QuerySet[Observed]) -> float:
    waiting = _alive(calls).filter(started_at=None)
    found = waiting.aggregate(first=Min("asked_at"), now=Min(DatabaseNow()))
    if found["first"] is None:
        return 0.0
    return float((found["now"] - found["first"]) / timedelta(seconds=1))


def _begin(using: str, mine: QuerySet[Observed]) -> None:
    row = mine.first()
    if row is None:
        return
    first = row.taken and row.started_at is None
    if first and row.dependency and (would := _limited(using, row)) is not None:
        _tell(row.task, row.lane, would)
        _keep(using, row, would)
    mine.update(started_at=DatabaseNow(), ended_at=None)


def _limited(using: str, row: Observed) -> Would | None:
    dependency = guard_settings().dependencies.get(row.dependency)
    if dependency is None:
        return None
    calls = Observed.objects.using(using).filter(
        ~Q(pk=row.pk), taken=True, dependency=row.dependency
    )
    running = _alive(calls).filter(started_at__isnull=False).count()
    if dependency.concurrency and running >= dependency.concurrency:
        return Would(decision="wait", reason=f"dependencies.{row.dependency}.concurrency")
    for rate in dependency.rate:
        recent = calls.filter(started_at__gt=in_seconds(-rate.per)).count()
        if recent >= rate.count:
            return Would(decision="wait", reason=f"dependencies.{row.dependency}.rate")
    return None


def _tell(task: str, lane: str, would: Would) -> None:
    facts = {"decision": would.decision, "reason": would.reason}
    emit("enqueue.observed", logging.DEBUG, task=task, lane=lane, **facts)


def _keep(using: str, row: Observed, would: Would) -> None:
    found = Difference(f"would {would.decision}: {would.reason}")
    with transaction.atomic(using=using):
        keep(using, row.task, row.public_id, found)
