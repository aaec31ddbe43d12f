"""What is in force, as one process knows it: read at most once in ``KEEPS`` seconds.

When the database can't be asked, what was read last still counts, and nothing does if nothing was
ever read: a switch must never be what stops a site.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from typing import Any

from django.db import Error as DatabaseError
from django.db import connections, transaction
from django.db.models import F

from celery_guard.enqueue.steering.models import Action, Switch
from celery_guard.events import emit
from celery_guard.jobs.clock import DatabaseNow
from celery_guard.jobs.pausing import Switched

KEEPS = 1.0
MOST = 200
"""Most switches in force at once, and most ended ones that are still looked at."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Switches:
    """The switches whose expiry has not come: ``ended`` are holds that somebody ended sooner."""

    holds: tuple[Switched, ...] = ()
    refusals: tuple[Switched, ...] = ()
    ended: tuple[Switched, ...] = ()


_kept: dict[str, tuple[float, Switches]] = {}


def switches(using: str) -> Switches:
    """What is in force for the ledger on ``using``, at most ``KEEPS`` seconds old."""
    read_at, known = _kept.get(using, (None, Switches()))
    if read_at is None or time.monotonic() - read_at > KEEPS:
        known = _ask(using, known)
        _kept[using] = (time.monotonic(), known)
    return known


def forget() -> None:
    """Read anew at the next look."""
    _kept.clear()


def _ask(using: str, known: Switches) -> Switches:
    try:
        if not connections[using].in_atomic_block:
            return _read(using)
        # A fault here must not break the caller's transaction.
        with transaction.atomic(using=using):
            return _read(using)
    except DatabaseError as error:
        emit("enqueue.steering_blind", logging.WARNING, using=using, error=str(error).strip())
        return known


def _read(using: str) -> Switches:
    rows = Switch.objects.using(using).filter(expires_at__gt=DatabaseNow())
    # Those in force first: where there are too many, they are the ones that count.
    first = rows.order_by(F("ended_at").desc(nulls_first=True), "-pk")[: 2 * MOST]
    found: list[Any] = list(first.values())
    return Switches(
        holds=_those(found, Action.HOLD, ended=False),
        refusals=_those(found, Action.REFUSE, ended=False),
        ended=_those(found, Action.HOLD, ended=True),
    )


def _those(rows: list[dict[str, Any]], action: Action, *, ended: bool) -> tuple[Switched, ...]:
    return tuple(
        Switched(
            id=row["id"],
            lane=row["lane"],
            task=row["task"],
            tenant=row["tenant"],
            until=row["expires_at"],
            reason=row["reason"],
        )
        for row in rows
        if row["action"] == action and (row["ended_at"] is not None) == ended
    )
