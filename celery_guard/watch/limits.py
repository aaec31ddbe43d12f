"""Which limits hold for each dependency now, and why, as it is shown to people."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from datetime import datetime
from typing import Any

from celery_guard.conf import Dependency, guard_settings
from celery_guard.jobs.clock import DatabaseNow
from celery_guard.relay.limits.changes import Change, change_of
from celery_guard.relay.limits.models import LimitChange
from celery_guard.relay.limits.rules import changed_rules
from celery_guard.watch.spoken import spoken


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ShownLimits:
    """A dependency's limits; what was set at run time has an author, a reason, ``left`` seconds."""

    dependency: str
    limits: str
    by_settings: str
    id: int | None = None
    reason: str = ""
    author: str = ""
    expires_at: datetime | None = None
    left: float | None = None

    @property
    def says(self) -> str:
        """All of it in one line."""
        if self.left is None:
            return f"{self.dependency} has {self.limits}, by the settings"
        return (
            f"{self.dependency} has {self.limits} for another {spoken(self.left)} "
            f"({self.author}: {self.reason}); then {self.by_settings}"
        )


def limits_now(*, set_only: bool = False) -> list[ShownLimits]:
    """Every dependency with the limits that hold for it, or those that were set at run time."""
    known = guard_settings().dependencies
    rows = LimitChange.objects.using(guard_settings().using).in_force().order_by("pk")
    changed: dict[str, Any] = {row.dependency: row for row in rows.annotate(now=DatabaseNow())}
    return [
        _shown(known[name], changed.get(name))
        for name in sorted(known)
        if name in changed or not set_only
    ]


def _shown(dependency: Dependency, row: Any) -> ShownLimits:
    own = spoken_limits(dependency)
    if row is None:
        return ShownLimits(dependency=dependency.name, limits=own, by_settings=own)
    return ShownLimits(
        dependency=dependency.name,
        limits=spoken_limits(dependency, change_of(row)),
        by_settings=own,
        id=row.pk,
        reason=row.reason,
        author=row.author,
        expires_at=row.expires_at,
        left=(row.expires_at - row.now).total_seconds(),
    )


def spoken_limits(dependency: Dependency, change: Change | None = None) -> str:
    """``rate 50/1s (burst 25), concurrency 10``: what holds, under ``change``."""
    change = change or Change()
    under, rules = change.applied_to(dependency), changed_rules(dependency, change)
    rates = [
        f"rate {rate} (burst {bucket.burst})"
        for rate, bucket in zip(under.rate, rules.buckets, strict=True)
    ]
    bound = [f"concurrency {under.concurrency}"] if under.concurrency else []
    return ", ".join([*rates, *bound]) or "no limit"


def as_json(shown: Collection[ShownLimits]) -> list[dict[str, object]]:
    """The same as plain values."""
    return [
        {
            **dataclasses.asdict(one),
            "expires_at": one.expires_at.isoformat() if one.expires_at else None,
        }
        for one in shown
    ]
