"""The fold: of a coalesce key's waiting requests the newest is sent, and speaks for the others.

Requests are only ever appended, without a lock on anything. Here, at the release, they come
together. What is sent or running is never touched: it may have read its data already. So a request
that comes during a run waits as the one follower, and its run sees the latest state.

Rows are locked before anything is concluded from them. One that somebody else holds, perhaps to
cancel it, takes no part: it neither speaks for others nor is spoken for.

A key belongs to no lane: whoever comes to it folds its requests of all lanes, and leaves the newest
in the fastest of them. It is sent by that lane's leader only. Two leaders that come to a key at
once share out its rows by the locks; each folds what it got, and the next look the rest.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from datetime import datetime, timedelta

from django.apps import apps
from django.db import connections
from django.db.models import QuerySet

from celery_guard.jobs import lanes
from celery_guard.jobs.clock import DatabaseNow
from celery_guard.jobs.following import LOOK_AGAIN, SLOT, Key, digest, live
from celery_guard.jobs.models import Job
from celery_guard.jobs.requests import CONCERNED, Request
from celery_guard.jobs.states import Reason, State

MOST = 10_000
"""Most requests of all keys that one pass folds, the newest ones."""

_OPEN = ("sent", "unknown", "manual")
"""States of an effect that was sent and has no answer: that room lies above, a test compares."""
_TICK = timedelta(microseconds=1)


def fold(using: str, lane: str, keys: Collection[Key]) -> list[int]:
    """Fold the waiting requests of ``keys``; return ``lane``'s jobs to be sent, or to expire.

    In the open transaction, in which the caller marks them.
    """
    order = lanes.mates(lane)
    groups = _locked(using, order, set(keys))
    # Asked after the locks: whatever was sent before them is seen.
    busy = _busy(using, order, set(groups))
    asking = _asking(using, groups.values())
    out: list[int] = []
    for key, requests in groups.items():
        out += [r.job.pk for r in requests if r.expired and r.job.lane == lane]
        alive = [r for r in requests if r.takes_part and not r.expired]
        place = busy.get(key, len(order))
        if asks := [r for r in alive if r.job.pk in asking or r.job.reason == Reason.UNCERTAIN]:
            # It asks after an outside call of its own, which no other job can.
            alive = [request for request in alive if request not in asks]
            mine = [request for request in asks if request.job.lane == lane]
            out += _send_alone(using, mine, busy=place <= order.index(lane))
            place = 0
        alive = _uncovered(using, key, alive)
        if alive and _fold(using, key, alive, lane, busy=place):
            out.append(alive[0].job.pk)
    return out


def _asking(using: str, groups: Iterable[list[Request]]) -> set[int]:
    # Whatever its reason says now: a worker that died in its call, or a refusal on the way back
    # to it, leaves the question open.
    ran = [r.job.pk for group in groups for r in group if r.job.started_at is not None]
    if not ran:
        return set()
    effects = apps.get_model("celery_guard", "Effect").objects.using(using)
    return set(effects.filter(job__in=ran, state__in=_OPEN).values_list("job_id", flat=True))


def _send_alone(using: str, asks: list[Request], *, busy: bool) -> list[int]:
    if not asks:
        return []
    now = asks[0].now
    due = [r.job.pk for r in asks if r.job.due_at is not None and r.job.due_at <= now]
    sent = [] if busy else due[-1:]
    waits = [pk for pk in due if pk not in sent]
    later = now + timedelta(seconds=LOOK_AGAIN)
    Job.objects.using(using).filter(pk__in=waits).update(due_at=later)
    return sent


def _locked(using: str, order: list[str], keys: set[Key]) -> dict[Key, list[Request]]:
    skips = connections[using].features.has_select_for_update_skip_locked
    waiting = live(using, keys).filter(lane__in=order, state=State.WAITING, sent_at=None)
    waiting = waiting.filter(CONCERNED)
    rows = waiting.order_by("-pk").select_for_update(skip_locked=skips)
    found = list(rows.annotate(now=DatabaseNow()).defer("result", "error")[:MOST])
    groups: dict[Key, list[Request]] = {}
    for job in found:
        key = (job.task, str(job.coalesce_key))
        if key in keys:
            groups.setdefault(key, []).append(Request(job, found[0].now))
    return groups


def _busy(using: str, order: list[str], keys: set[Key]) -> dict[Key, int]:
    # The place of the fastest lane in which a job of the key is sent; one that runs comes first.
    sent = live(using, keys).filter(sent_at__isnull=False)
    found: defaultdict[Key, list[int]] = defaultdict(list)
    for task, key, lane, state in sent.values_list("task", "coalesce_key", "lane", "state"):
        if state != State.WAITING:
            found[task, str(key)].append(0)
        elif lane in order:
            found[task, str(key)].append(order.index(lane))
    return {key: min(places) for key, places in found.items()}


def _fold(using: str, key: Key, requests: list[Request], lane: str, *, busy: int) -> bool:
    """Let the newest speak for all; whether it is to be sent, in ``lane``.

    :param busy: the place, among the lanes, of the fastest in which a job of the key is sent.
    """
    newest, *older = requests
    now = newest.now
    order = lanes.mates(lane)
    fastest = min(requests, key=lambda request: order.index(request.job.lane))
    # What was sent to a slower lane holds up nobody: that queue may be long, and the slot keeps
    # the two from running at once.
    follows = busy <= order.index(fastest.job.lane)
    due = _due(using, key, requests)
    if follows:
        due = max(due, now + timedelta(seconds=LOOK_AGAIN))
    if older:
        _supersede(using, older, newest.job.pk)
    changes = _inherited(requests) if older else {}
    changes |= lanes.moved(using, newest.job, fastest.job)
    goes = changes.get("lane", newest.job.lane)
    if due > now:
        changes["due_at"] = due
        if follows and not any(request.held_back for request in requests):
            changes["reason"] = Reason.FOLLOWER
    elif goes != lane:
        changes["due_at"] = _place(requests, goes)
    if changes:
        Job.objects.using(using).filter(pk=newest.job.pk).update(**changes)
    return due <= now and goes == lane


def _place(requests: list[Request], lane: object) -> datetime:
    # In the line of the lane in which it goes on: else it would go to its end with each request
    # that comes in a lane that is looked at sooner.
    waited = (r.job.due_at for r in requests if r.job.lane == lane and r.job.due_at)
    return min([requests[0].now, *waited])


def _due(using: str, key: Key, requests: list[Request]) -> datetime:
    due = requests[0].now
    if put_off := [request.job for request in requests if request.debounced]:
        latest = max(job.first_due_at for job in put_off)
        due = max(due, min(latest, *(job.max_due_at for job in put_off if job.max_due_at)))
    due = max([due, *(r.job.due_at for r in requests if r.held_back and r.job.due_at)])
    if (period := requests[0].period) and (ended := _newest_end(using, key)):
        # The database's clock may have been ahead when that run ended.
        due = max(due, min(ended, requests[0].now) + period)
    return due


def _newest_end(using: str, key: Key) -> datetime | None:
    ran = (State.SUCCEEDED, State.FAILED, State.DEAD)
    ended = _of_key(using, key).filter(finished_at__isnull=False, state__in=ran)
    return ended.order_by("-finished_at").values_list("finished_at", flat=True).first()


def _inherited(requests: list[Request]) -> dict[str, object]:
    # The newest stands for all of them: it must not forget what any of them has used up, waits
    # for, or was promised.
    jobs = [request.job for request in requests]
    newest = jobs[0]
    changes: dict[str, object] = {
        "failures": max(job.failures for job in jobs),
        "lost": max(job.lost for job in jobs),
    }
    ends = [job.expires_at for job in jobs]
    changes["expires_at"] = None if None in ends else max(end for end in ends if end)
    if held_back := [request.job for request in requests if request.held_back]:
        changes["reason"] = max(held_back, key=lambda job: job.due_at or job.created_at).reason
    limits = [r.job.max_due_at for r in requests if r.debounced and r.job.max_due_at]
    if requests[0].debounced:
        # A time before its creation would be read as a period.
        changes["max_due_at"] = max(min(limits), newest.created_at + _TICK)
    else:
        # Its age is that of the oldest request it answers.
        changes["first_due_at"] = min(job.first_due_at for job in jobs)
    return changes


def _supersede(using: str, requests: Iterable[Request], survivor: int) -> None:
    jobs = [request.job for request in requests]
    rows = Job.objects.using(using)
    # Somebody waits for these task ids: they leave the key as echoes, which are answered as
    # the survivor ends.
    rows.filter(pk__in=[job.pk for job in jobs if job.awaited]).update(
        reason=Reason.ECHO,
        survivor=survivor,
        coalesce_key=None,
        due_at=DatabaseNow(),
        expires_at=None,
    )
    rows.filter(pk__in=[job.pk for job in jobs if not job.awaited]).update(
        state=State.SUPERSEDED,
        reason=Reason.COALESCED,
        survivor=survivor,
        due_at=None,
        finished_at=DatabaseNow(),
    )


def _uncovered(using: str, key: Key, requests: list[Request]) -> list[Request]:
    """``requests`` without those that a later, successful run has already answered."""
    # Only what has run before can tell: row numbers are given out before the commit, so a
    # higher number that succeeded may not have seen a lower one.
    ran = [request for request in requests if request.job.started_at is not None]
    for request in ran:
        if (survivor := _cover(using, key, request.job.started_at)) is not None:
            _supersede(using, [request], survivor)
            requests = [other for other in requests if other is not request]
    return requests


def _cover(using: str, key: Key, since: datetime | None) -> int | None:
    good = _of_key(using, key).filter(
        finished_at__isnull=False, state=State.SUCCEEDED, started_at__gt=since
    )
    return good.order_by("-finished_at").values_list("pk", flat=True).first()


def _of_key(using: str, key: Key) -> QuerySet[Job]:
    task, coalesce_key = key
    rows = Job.objects.using(using).filter(task=task, coalesce_key=coalesce_key)
    if connections[using].vendor == "postgresql":
        return rows
    # Elsewhere texts may be equal that differ in case or accents; what the slot is named by not.
    return rows.alias(slot=SLOT).filter(slot=digest(task, coalesce_key))


def supersede_covered(using: str, *job_ids: int) -> int:
    """End those of ``job_ids`` as superseded whose key had a success that began after they ended.

    They are not run again: their run would follow, and undo, one that saw a later state.
    """
    ended = Job.objects.using(using).filter(pk__in=job_ids, coalesce_key__isnull=False)
    ended = ended.filter(finished_at__isnull=False).exclude(state=State.SUCCEEDED)
    moved = 0
    for job in ended.only("pk", "task", "coalesce_key", "finished_at", "state"):
        key = (job.task, str(job.coalesce_key))
        if (survivor := _cover(using, key, job.finished_at)) is not None:
            moved += ended.filter(pk=job.pk, state=job.state).update(
                state=State.SUPERSEDED, reason=Reason.COALESCED, survivor=survivor
            )
    return moved
