"""The release of a lane in which some jobs are held: those are put aside, the others go.

Slower than the ordinary release, and used only while a hold touches the lane. Every held job is
met once and moved away from the head, so 10,000 of them cost 20 looks, not 20 a release.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from django.db import connections, transaction

from celery_guard.jobs import pausing, sharing
from celery_guard.jobs.following import Key
from celery_guard.jobs.models import Job
from celery_guard.jobs.pausing import Switched
from celery_guard.jobs.release_portably import leads, mark
from celery_guard.jobs.sending import Lead, Sending
from celery_guard.jobs.sharing import HEAD_ONLY, Stretch

LOOK = 500
"""Rows of the lane's head that one round looks at."""
LOOK_EACH = 100
"""The same of each tenant's, where tenants take turns."""
ROUNDS = 20
"""Most rounds of one release that only put jobs aside."""

Row = tuple[int, str, str, str | None]


def release(
    using: str,
    lead: Lead,
    batch: int,
    window: int | None,
    expired: str,
    shares: Mapping[str, int] | None = None,
    nobodys: Stretch = HEAD_ONLY,
) -> tuple[list[Sending], set[Key]]:
    """See :func:`celery_guard.jobs.release_portably.release`; jobs under a hold are not sent."""
    for _ in range(ROUNDS):
        with transaction.atomic(using=using):
            # Before any job: everybody locks switches first.
            holds = pausing.holds_in_force(using)
            if any(hold.closes(lead.lane) for hold in holds):
                return [], set()
            if not leads(using, lead).exists():
                return [], set()
            room = _room(using, lead.lane, batch, window, shares)
            rows = _locked(using, lead.lane, room, shares, nobodys)
            free = _without_held(using, lead.lane, rows, holds)
            if free or not rows:
                chosen = _within(free, room, shares)
                alone = [pk for pk, _, _, key in chosen if key is None]
                keys = {(task, key) for _, task, _, key in chosen if key is not None}
                return mark(using, alone, expired), keys
    return [], set()


def _room(
    using: str, lane: str, batch: int, window: int | None, shares: Mapping[str, int] | None
) -> int:
    if shares is not None or window is None:
        return batch
    held = Job.objects.using(using).filter(lane=lane, sent_at__isnull=False).count()
    return max(0, min(batch, window - held))


def _locked(
    using: str, lane: str, room: int, shares: Mapping[str, int] | None, nobodys: Stretch
) -> list[Row]:
    if room == 0:
        return []
    due = sharing.due(using, lane)
    if shares is not None:
        each = {tenant: max(share, LOOK_EACH) for tenant, share in shares.items()}
        due = due.filter(pk__in=sharing.heads(using, lane, each, nobodys))
    skips = connections[using].features.has_select_for_update_skip_locked
    rows = due.order_by("sent_at", "due_at").select_for_update(skip_locked=skips)
    most = max(LOOK, room) if shares is None else None
    return list(rows.values_list("pk", "task", "tenant", "coalesce_key")[:most])


def _without_held(
    using: str, lane: str, rows: Sequence[Row], holds: Sequence[Switched]
) -> list[Row]:
    aside: dict[datetime, list[int]] = {}
    free = []
    for row in rows:
        if (due := pausing.until(holds, lane, row[1], row[2])) is None:
            free.append(row)
        else:
            aside.setdefault(due, []).append(row[0])
    for due, ids in aside.items():
        pausing.put_aside(Job.objects.using(using).filter(pk__in=ids), due)
    return free


def _within(rows: Sequence[Row], room: int, shares: Mapping[str, int] | None) -> Sequence[Row]:
    if shares is None:
        return rows[:room]
    left = dict(shares)
    chosen = []
    for row in rows:
        if left.get(row[2], 0) > 0:
            left[row[2]] -= 1
            chosen.append(row)
    return chosen
