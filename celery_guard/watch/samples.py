"""The minutes of each lane: what curves are drawn from, and what scaling in looks back on."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime, timedelta

from django.db import connections

from celery_guard.watch.models import LaneSample, LaneSnapshot

KEPT = timedelta(hours=24)

_WRITTEN = [
    f.name for f in LaneSample._meta.concrete_fields if f.name not in ("id", "lane", "minute")
]


def minute_of(now: datetime) -> datetime:
    """The minute that ``now`` falls into."""
    return now.replace(second=0, microsecond=0)


def recent(using: str, since: datetime) -> dict[str, list[LaneSample]]:
    """The samples from ``since`` on by lane, the oldest first."""
    found: dict[str, list[LaneSample]] = {}
    rows = LaneSample.objects.using(using).filter(minute__gte=minute_of(since))
    for row in rows.order_by("lane", "minute"):
        found.setdefault(row.lane, []).append(row)
    return found


def most_needed(samples: Iterable[LaneSample]) -> int:
    """The most workers that any of the minutes asked for."""
    return max((sample.needed for sample in samples), default=0)


def add(
    using: str,
    rows: Collection[LaneSnapshot],
    needed: dict[str, int],
    past: dict[str, list[LaneSample]],
) -> None:
    """Bring the minute of each of ``rows`` up to date and forget what is older than a day."""
    samples = [_sample(row, needed[row.lane], past.get(row.lane, [])) for row in rows]
    table = LaneSample.objects.using(using)
    unique = [] if connections[using].vendor == "mysql" else ["lane", "minute"]
    table.bulk_create(
        # In one order, so that two writers at once can't deadlock.
        sorted(samples, key=lambda sample: sample.lane),
        update_conflicts=True,
        update_fields=_WRITTEN,
        unique_fields=unique,
    )
    for row in rows if _begins_a_minute(rows, past) else ():
        table.filter(lane=row.lane, minute__lt=row.taken_at - KEPT).delete()


def _begins_a_minute(rows: Collection[LaneSnapshot], past: dict[str, list[LaneSample]]) -> bool:
    known = {found[-1].minute for found in past.values()}
    return any(minute_of(row.taken_at) not in known for row in rows)


def _sample(row: LaneSnapshot, needed: int, past: list[LaneSample]) -> LaneSample:
    minute = minute_of(row.taken_at)
    same = past[-1] if past and past[-1].minute == minute else None
    waits = (row.taken_at - row.oldest_due_at).total_seconds() if row.oldest_due_at else 0.0
    return LaneSample(
        lane=row.lane,
        minute=minute,
        age=max(waits, same.age if same else 0.0),
        ready=row.ready,
        arrivals_per_second=max(0.0, row.arrivals_per_second),
        completions_per_second=max(0.0, row.completions_per_second),
        workers=row.workers,
        needed=max(needed, same.needed if same else 0),
        advised=row.desired_workers or 0,
    )
