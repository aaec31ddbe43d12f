"""The oldest due jobs of each tenant, locked, where no statement does both at once.

They are found first and locked then, by id: a statement that finds and locks may lock a whole range. A
row that others hold is passed over, and the next one takes its place, however many they hold.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from django.db import connections

from celery_guard.jobs import sharing
from celery_guard.jobs.sharing import FAR, NOBODY, SPARE, Stretch

WIDER = 4
"""By so much further a look goes where it met too many locked rows."""


def locked(
    using: str,
    lane: str,
    shares: Mapping[str, int],
    nobodys: Stretch,
    *columns: str,
    among: Mapping[int, str] | None = None,
) -> list[tuple[Any, ...]]:
    """``columns`` of as many due jobs of each tenant as its share, oldest first, in the open transaction.

    :param among: only those, given oldest first with their tenants; None: whoever is due.
    """
    found: list[tuple[Any, ...]] = []
    left, spare = Counter(shares), SPARE
    short = set(shares)
    while short and spare <= FAR:
        most = {tenant: left[tenant] + spare for tenant in short}
        heads = {t: _head(using, lane, t, most[t], nobodys, among) for t in short}
        known = {row[1] for row in found}
        wanted = [pk for head in heads.values() for pk in head if pk not in known]
        rows = _lock(using, lane, wanted, *columns)
        for row in rows:
            if left[row[2]] > 0:
                left[row[2]] -= 1
                found.append(row)
        # Whoever got too little only because others hold its oldest is looked at further on.
        short = {t for t in short if left[t] > 0 and len(heads[t]) == most[t]}
        spare *= WIDER
    return [row[3:] for row in sorted(found, key=lambda row: row[:2])]


def _head(
    using: str,
    lane: str,
    tenant: str,
    most: int,
    nobodys: Stretch,
    among: Mapping[int, str] | None,
) -> list[int]:
    if among is not None:
        return [pk for pk, whose in among.items() if whose == tenant][:most]
    if tenant == NOBODY:
        line = sharing.along(using, lane, nobodys).values_list("pk", "tenant")
        return [pk for pk, whose in line[: max(most, nobodys.most)] if whose == NOBODY][:most]
    theirs = sharing.due(using, lane).filter(tenant=tenant).order_by("due_at")
    return list(theirs.values_list("pk", flat=True)[:most])


def _lock(using: str, lane: str, ids: list[int], *columns: str) -> list[tuple[Any, ...]]:
    skips = connections[using].features.has_select_for_update_skip_locked
    rows = sharing.due(using, lane).filter(pk__in=ids).order_by("due_at", "pk")
    rows = rows.select_for_update(skip_locked=skips)
    return list(rows.values_list("due_at", "pk", "tenant", *columns))
