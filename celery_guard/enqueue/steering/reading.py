"""What is in force, as one process knows it.

When the database can't be asked, what was read last still counts, and nothing does if nothing was
ever read: a switch must never be what stops a site.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from django.db.models import F

from celery_guard.enqueue.steering.known import Known
from celery_guard.enqueue.steering.models import Action, Switch
from celery_guard.jobs.clock import DatabaseNow
from celery_guard.jobs.pausing import Switched

MOST = 200
"""Most switches in force at once, and most ended ones that are still looked at."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Switches:
    """The switches whose expiry has not come: ``ended`` are holds that somebody ended sooner."""

    holds: tuple[Switched, ...] = ()
    refusals: tuple[Switched, ...] = ()
    demotions: tuple[Switched, ...] = ()
    ended: tuple[Switched, ...] = ()

    @property
    def ask_each_call(self) -> bool:
        """Whether what becomes of a new request depends on whose it is."""
        return bool(self.refusals or self.demotions)


def switches(using: str) -> Switches:
    """What is in force for the ledger on ``using``, at most a second old."""
    return _known.now(using)


def forget() -> None:
    """Read anew at the next look."""
    _known.forget()


def _read(using: str) -> Switches:
    rows = Switch.objects.using(using).filter(expires_at__gt=DatabaseNow())
    # Those in force first: where there are too many, they are the ones that count.
    first = rows.order_by(F("ended_at").desc(nulls_first=True), "-pk")[: 2 * MOST]
    found: list[Any] = list(first.values())
    return Switches(
        holds=_those(found, Action.HOLD, ended=False),
        refusals=_those(found, Action.REFUSE, ended=False),
        demotions=_those(found, Action.DEMOTE, ended=False),
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


_known = Known(_read, nothing=Switches(), blind="enqueue.steering_blind")
