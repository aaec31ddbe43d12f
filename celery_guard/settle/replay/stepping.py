"""The duty that does bulk replays, a small transaction at a time.

A step locks its replay, so two never work on one; what it moves, what it notes of each job and
when it goes on are committed together. A step that dies has not been.
"""

from __future__ import annotations

import collections
import time
from datetime import datetime, timedelta
from typing import Any

from django.db import connections, transaction
from django.db.models import QuerySet

from celery_guard.conf import guard_settings
from celery_guard.events import emit
from celery_guard.faults import fault_point
from celery_guard.jobs.clock import DatabaseNow, in_seconds
from celery_guard.jobs.ranges import next_range
from celery_guard.relay.duties import duty
from celery_guard.settle.replay import choosing
from celery_guard.settle.replay.choosing import Wanted, matching
from celery_guard.settle.replay.models import (
    ACTIVE,
    ItemState,
    Replay,
    ReplayItem,
    ReplayState,
)
from celery_guard.settle.replay.moving import move

STEP = 100
"""Most jobs moved in one transaction."""
MEMBERS_MOST = 100_000
"""Most jobs of one replay; whoever wants more asks again."""
SPEND = 1.0
"""Seconds that one round may take."""
BEHIND = 2
"""Periods of the duty that are caught up with at once; a longer outage is no reason for a burst."""
LOOK_AGAIN = 1.0
"""Seconds until jobs that somebody else holds are tried again."""
FORGOTTEN_AT_ONCE = 1000


@duty("replay", every=lambda: guard_settings().sweep.every)
def replay_a_little(using: str) -> None:
    """Go on with the replays that are due, and forget old ones."""
    until = time.monotonic() + SPEND
    while step(using) and time.monotonic() < until:
        pass
    _forget(using)


def step(using: str) -> bool:
    """Do one piece of the replay that has waited longest; False when none is due."""
    with transaction.atomic(using=using):
        replay = _take(using)
        if replay is None:
            return False
        now: datetime = replay.now  # type: ignore[attr-defined]
        if replay.state == ReplayState.CHOOSING:
            _choose(using, replay)
        else:
            _go_on(using, replay, now)
        fault_point("settle.replaying")
    fault_point("settle.replayed")
    if replay.state == ReplayState.DONE:
        counts = {"replayed": replay.replayed, "skipped": replay.skipped}
        emit("settle.replay_done", replay=replay.pk, **counts)
    return True


def _take(using: str) -> Replay | None:
    skips = connections[using].features.has_select_for_update_skip_locked
    due: QuerySet[Replay] = Replay.objects.using(using).filter(
        state__in=ACTIVE, next_at__lte=DatabaseNow()
    )
    locked = due.annotate(now=DatabaseNow()).select_for_update(skip_locked=skips)
    return locked.order_by("next_at", "pk").first()


def _choose(using: str, replay: Replay) -> None:
    bounds = next_range(using, replay.cursor, choosing.RANGE)
    room = MEMBERS_MOST - replay.chosen
    if bounds is None or bounds[0] > replay.up_to or room <= 0:
        _save(using, replay, **({"state": ReplayState.RUNNING} if replay.chosen else _ended()))
        return
    first, last = bounds[0], min(bounds[1], replay.up_to)
    words = {name: getattr(replay, name) for name in ("task", "mark", "lane", "tenant")}
    found = matching(using, Wanted(**words)).filter(pk__gte=first, pk__lte=last)
    # Whoever ends later is not meant: what was asked for can't grow.
    found = found.filter(finished_at__lte=replay.created_at).order_by("pk")
    members = list(found.values_list("pk", flat=True)[:room])
    ReplayItem.objects.using(using).bulk_create(
        [ReplayItem(replay=replay, job_id=pk) for pk in members], batch_size=1000
    )
    _save(using, replay, cursor=last, chosen=replay.chosen + len(members))


def _go_on(using: str, replay: Replay, now: datetime) -> None:
    longest_ago = now - timedelta(seconds=BEHIND * guard_settings().sweep.every)
    begin = max(replay.next_at, longest_ago)
    due = 1 + int((now - begin).total_seconds() * replay.pace)
    items = ReplayItem.objects.using(using).filter(replay=replay)
    pending = items.filter(state=ItemState.PENDING).order_by("pk")
    members = list(pending.values_list("job_id", flat=True)[: min(STEP, due)])
    if not members:
        _save(using, replay, **_ended())
        return
    told = move(using, members, replay.created_at)
    counts = collections.Counter("" if not why else "skipped" for why in told.values())
    for why in set(told.values()):
        items.filter(job__in=[pk for pk, w in told.items() if w == why]).update(
            state=ItemState.SKIPPED if why else ItemState.REPLAYED,
            reason=why,
            decided_at=DatabaseNow(),
        )
    pause = counts[""] / replay.pace if told else LOOK_AGAIN
    replayed, skipped = replay.replayed + counts[""], replay.skipped + counts["skipped"]
    over = _ended() if replayed + skipped == replay.chosen else {}
    next_at = (begin if told else now) + timedelta(seconds=pause)
    _save(using, replay, replayed=replayed, skipped=skipped, next_at=next_at, **over)


def _ended() -> dict[str, Any]:
    return {"state": ReplayState.DONE, "finished_at": DatabaseNow()}


def _save(using: str, replay: Replay, **changes: Any) -> None:
    # It is locked since it was read.
    Replay.objects.using(using).filter(pk=replay.pk).update(**changes)
    for name, value in changes.items():
        setattr(replay, name, value)


def _forget(using: str) -> None:
    keep = guard_settings().retention
    # A job's message is gone by then too: there is nothing left to run too often.
    old = Replay.objects.using(using).filter(finished_at__lt=in_seconds(-keep.failed))
    items = ReplayItem.objects.using(using).filter(replay__in=old.values("pk"))
    some = list(items.values_list("pk", flat=True)[:FORGOTTEN_AT_ONCE])
    ReplayItem.objects.using(using).filter(pk__in=some).delete()
    if not some:
        old.filter(finished_at__lt=in_seconds(-keep.keys)).delete()
