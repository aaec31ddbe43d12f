"""Counts what a scope holds; called with its gate locked, so that nobody is let in meanwhile."""

from __future__ import annotations

import functools
from datetime import datetime, timedelta
from importlib import resources
from typing import Any

from django.db import connections
from django.db.models import QuerySet

from celery_guard.enqueue.admission.limits import Cap
from celery_guard.enqueue.admission.models import Reservation
from celery_guard.jobs.clock import DatabaseNow

HORIZON = timedelta(seconds=60)
"""Jobs that are due later than this do not count: they take no room yet."""
UNBOUNDED = 1_000_000_000


@functools.cache
def statement(name: str) -> str:
    """The SQL of the file ``name``."""
    room = resources.files("celery_guard.enqueue.admission")
    text = room.joinpath("sql", f"{name}.sql").read_text("utf-8")
    return "\n".join(line for line in text.splitlines() if not line.startswith("--"))


def room_of(using: str, cap: Cap, now: datetime) -> tuple[int, bool]:
    """How many more requests ``cap`` lets in, and whether too many of its jobs run."""
    if cap.most is None and cap.running is None:
        return UNBOUNDED, False
    _remove_ended(using, cap)
    if cap.tenant:
        return _of_tenant(using, cap, now)
    most = cap.most or 0
    due = connections[using].ops.adapt_datetimefield_value(now + HORIZON)
    ((held,),) = _rows(using, "count_lane", (cap.lane, due, most, cap.lane, most, cap.lane))
    return max(0, most - held), False


def _of_tenant(using: str, cap: Cap, now: datetime) -> tuple[int, bool]:
    most = UNBOUNDED if cap.most is None else cap.most
    due = connections[using].ops.adapt_datetimefield_value(now + HORIZON)
    bound, running = cap.most or 0, cap.running or 0
    arguments = (cap.tenant, due, bound, cap.tenant, cap.tenant, running)
    ((held, run),) = _rows(using, "count_tenant", arguments)
    return max(0, most - held), cap.running is not None and run >= cap.running


def _rows(using: str, name: str, arguments: tuple[Any, ...]) -> list[tuple[int, ...]]:
    with connections[using].cursor() as cursor:
        cursor.execute(statement(name), arguments)
        return list(cursor.fetchall())


def _remove_ended(using: str, cap: Cap) -> None:
    places = Reservation.objects.using(using).filter(until__lte=DatabaseNow())
    remove(using, places.filter(tenant=cap.tenant) if cap.tenant else places.filter(lane=cap.lane))


def remove(using: str, places: QuerySet[Reservation]) -> None:
    """Remove those of ``places`` that no open transaction is just consuming."""
    skips = connections[using].features.has_select_for_update_skip_locked
    free = places.select_for_update(skip_locked=skips).order_by("pk")
    if ids := list(free.values_list("pk", flat=True)):
        Reservation.objects.using(using).filter(pk__in=ids).delete()
