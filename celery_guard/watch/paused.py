"""What is held, refused or demoted now, as it is shown to people."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Collection, Iterable
from datetime import datetime
from typing import Any

from celery import Celery

from celery_guard.conf import guard_settings
from celery_guard.enqueue.steering.models import Switch
from celery_guard.jobs.clock import DatabaseNow
from celery_guard.relay.lead import find_lanes
from celery_guard.watch.spoken import spoken

SHOWN_MOST = 200
_SAME = ("action", "lane", "task", "tenant", "reason", "author", "created_at", "expires_at")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """One switch in force; ``left`` is in seconds, by the database's clock."""

    using: str
    id: int
    action: str
    lane: str
    task: str
    tenant: str
    reason: str
    author: str
    created_at: datetime
    expires_at: datetime
    left: float

    @property
    def scope(self) -> str:
        """Which jobs it matches, in words."""
        named = [f"{n} {v}" for n in ("lane", "task", "tenant") if (v := getattr(self, n))]
        return ", ".join(named) or "everything"

    @property
    def says(self) -> str:
        """The whole switch in one line."""
        return (
            f"switch {self.id} {self.action}s {self.scope} for another {spoken(self.left)} "
            f"({self.author}: {self.reason})"
        )


def in_force(aliases: Iterable[str]) -> list[Shown]:
    """The switches in force in these ledgers, the one that ends first first."""
    found = [shown for using in aliases for shown in _of(using)]
    return sorted(found, key=lambda shown: shown.left)


def _of(using: str) -> list[Shown]:
    rows = Switch.objects.using(using).in_force()
    first: Any = rows.annotate(now=DatabaseNow()).order_by("expires_at", "pk")[:SHOWN_MOST]
    return [
        Shown(
            using=using,
            id=row.pk,
            **{name: getattr(row, name) for name in _SAME},
            left=(row.expires_at - row.now).total_seconds(),
        )
        for row in first
    ]


def as_json(shown: Iterable[Shown]) -> list[dict[str, object]]:
    """The same as plain values."""
    return [
        {
            **dataclasses.asdict(one),
            "created_at": one.created_at.isoformat(),
            "expires_at": one.expires_at.isoformat(),
        }
        for one in shown
    ]


def unknown_lane(name: str, aliases: Iterable[str]) -> list[str]:
    """Why no switch should name this lane: it would match nothing."""
    lanes = {*guard_settings().lanes, *(lane for using in aliases for lane in find_lanes(using))}
    return _unknown("lane", name, lanes)


def unknown_task(name: str, app: Celery) -> list[str]:
    """The same of a task, as far as this process has loaded them."""
    return _unknown("task", name, set(app.tasks))


def _unknown(what: str, name: str, known: Collection[str]) -> list[str]:
    if not name or name in known:
        return []
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    meant = f"; did you mean {near[0]}?" if near else ""
    return [f"there is no {what} {name!r}{meant}"]
