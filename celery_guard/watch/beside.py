"""What the snapshot finds beside the lanes: a few whole numbers by name and place, kept as counters are.

They are replaced as a whole and carry the time of their measurement, so that what nobody measures any
more is told by nobody.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.db import connections
from django.db.models import Q

from celery_guard.jobs.clock import DatabaseNow
from celery_guard.jobs.lazily import lazy_transaction
from celery_guard.watch.lanes import stale_after
from celery_guard.watch.models import Counter

MILLI = 1000
LONGEST = 64
"""Characters of a place's name that the table takes; longer ones are left out."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """Numbers that are measured together; ``names`` are theirs in the table."""

    name: str
    names: tuple[str, ...]


Numbers = Mapping[str, Mapping[str, int]]
"""By name, then by place."""


def keep(using: str, topic: Topic, numbers: Numbers, now: datetime) -> None:
    """Make ``numbers`` all that is known of ``topic`` as of ``now``, the database's time."""
    found = {**numbers, topic.name: {"": round(now.timestamp() * MILLI)}} if numbers else {}
    # In one order, so that two writers at once can't deadlock.
    new = [
        Counter(name=name, lane=place, value=found[name][place])
        for name in sorted(found)
        for place in sorted(found[name])
        if len(place) <= LONGEST
    ]
    gone = (
        Q(name=name) & ~Q(lane__in=list(found.get(name, ()))) for name in (topic.name, *topic.names)
    )
    rows = Counter.objects.using(using)
    unique = [] if connections[using].vendor == "mysql" else ["name", "lane"]
    # What a crash of the server undoes is measured anew.
    with lazy_transaction(using):
        rows.bulk_create(new, update_conflicts=True, update_fields=["value"], unique_fields=unique)
        rows.filter(functools.reduce(operator.or_, gone)).delete()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What is known, by name and place, ``now`` being the database's time, Unix."""

    now: float
    numbers: Numbers

    def of(self, name: str) -> Mapping[str, int]:
        """The numbers of this name by place."""
        return self.numbers.get(name, {})


def read(using: str, *topics: Topic) -> Known:
    """What is known of ``topics``; nothing of one whose measurement no longer counts."""
    wanted = [name for topic in topics for name in (topic.name, *topic.names)]
    rows: Any = Counter.objects.using(using).filter(name__in=wanted).annotate(now=DatabaseNow())
    found: dict[str, dict[str, int]] = {}
    now = 0.0
    for row in rows:
        found.setdefault(row.name, {})[row.lane] = row.value
        now = row.now.timestamp()
    fresh = {topic.name for topic in topics if _counts(found.get(topic.name), now)}
    told = {name for topic in topics if topic.name in fresh for name in topic.names}
    kept = {name: places for name, places in found.items() if name in told}
    return Known(now=now, numbers=kept)


def _counts(at: Mapping[str, int] | None, now: float) -> bool:
    return bool(at) and now - (at or {}).get("", 0) / MILLI <= stale_after()
