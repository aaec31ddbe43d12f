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

import dataclasses
from collections import defaultdict
from collections.abc import Collection, Iterable
from datetime import datetime, timedelta

from django.apps import apps
from django.db import connections

from celery_guard.jobs import lanes
from celery_guard.jobs.clock import DatabaseNow
from celery_guard.jobs.covering import cover, newest_ends
from celery_guard.jobs.fold_plan import Plan
from celery_guard.jobs.following import Key, live
from celery_guard.jobs.requests import CONCERNED, NEEDED, Request
from celery_guard.jobs.states import Reason, State

MOST = 10_000
"""Most requests of all keys that one pass folds, the newest ones."""

_OPEN = ("sent", "unknown", "manual")
"""States of an effect that was sent and has no answer: that room lies above, a test compares."""
_TICK = timedelta(microseconds=1)


@dataclasses.dataclass(frozen=True, slots=True)
class _Group:
    """The requests of a key that come together, the newest first.

    ``busy`` is the place, among the lanes, of the fastest in which a job of the key is sent.
    """

    requests: list[Request]
    busy: int


def fold(using: str, lane: str, keys: Collection[Key]) -> list[int]:
    """Fold the waiting requests of ``keys``; return ``lane``'s jobs to be sent, or to expire.

    In the open transaction, in which the caller marks them.
    """
    order = lanes.mates(lane)
    before = _busy(using, order, set(keys))
    found = _locked(using, order, set(keys))
    # Asked after the locks: whatever was sent before them is seen.
    busy = _busy(using, order, set(found))
    if just_ended := before.keys() & found.keys() - busy.keys():
        # Whoever ended it may have held its followers, so that they are missing here. Without them
        # the others would be one run more.
        busy |= {key: before[key] for key in _with_others(using, just_ended, found)}
    asking = _asking(using, found.values())
    out: list[int] = []
    plan = Plan()
    groups: list[_Group] = []
    for key, requests in found.items():
        out += [r.job.pk for r in requests if r.expired and r.job.lane == lane]
        alive = [r for r in requests if r.takes_part and not r.expired]
        place = busy.get(key, len(order))
        if asks := [r for r in alive if r.job.pk in asking or r.job.reason == Reason.UNCERTAIN]:
            # It asks after an outside call of its own, which no other job can.
            alive = [request for request in alive if request not in asks]
            mine = [request for request in asks if request.job.lane == lane]
            out += _send_alone(plan, mine, busy=place <= order.index(lane))
            place = 0
        if alive := _uncovered(using, key, alive, plan):
            groups.append(_Group(alive, place))
    periodic = [group.requests[0].job for group in groups if group.requests[0].period]
    ends = newest_ends(using, periodic) if periodic else {}
    out += [
        group.requests[0].job.pk
        for group in groups
        if _fold(using, group, lane, ends.get(group.requests[0].job.pk), plan)
    ]
    plan.write(using)
    return out


def _asking(using: str, groups: Iterable[list[Request]]) -> set[int]:
    # Whatever its reason says now: a worker that died in its call, or a refusal on the way back
    # to it, leaves the question open.
    ran = [r.job.pk for group in groups for r in group if r.job.started_at is not None]
    if not ran:
        return set()
    effects = apps.get_model("celery_guard", "Effect").objects.using(using)
    return set(effects.filter(job__in=ran, state__in=_OPEN).values_list("job_id", flat=True))


def _send_alone(plan: Plan, asks: list[Request], *, busy: bool) -> list[int]:
    due = [r for r in asks if r.job.due_at is not None and r.job.due_at <= r.now]
    sent = [] if busy else due[-1:]
    for request in due:
        if request not in sent:
            plan.change(request.job, {"due_at": request.later})
    return [request.job.pk for request in sent]


def _locked(using: str, order: list[str], keys: set[Key]) -> dict[Key, list[Request]]:
    skips = connections[using].features.has_select_for_update_skip_locked
    waiting = live(using, keys).filter(lane__in=order, state=State.WAITING, sent_at=None)
    waiting = waiting.filter(CONCERNED)
    rows = waiting.order_by("-pk").select_for_update(skip_locked=skips)
    found = list(rows.annotate(now=DatabaseNow()).only(*NEEDED)[:MOST])
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


def _with_others(using: str, keys: set[Key], found: dict[Key, list[Request]]) -> set[Key]:
    # Those of ``keys`` that have waiting requests besides the ones that were found.
    locked = [request.job.pk for key in keys for request in found[key]]
    waiting = live(using, keys).filter(state=State.WAITING, sent_at=None).exclude(pk__in=locked)
    return keys & {(task, str(key)) for task, key in waiting.values_list("task", "coalesce_key")}


def _fold(using: str, group: _Group, lane: str, ended: datetime | None, plan: Plan) -> bool:
    """Let the newest speak for all; whether it is to be sent, in ``lane``.

    :param ended: when a job of the key ended last, if that counts.
    """
    requests = group.requests
    newest, *older = requests
    now = newest.now
    order = lanes.mates(lane)
    fastest = min(requests, key=lambda request: order.index(request.job.lane))
    # What was sent to a slower lane holds up nobody: that queue may be long, and the slot keeps
    # the two from running at once.
    follows = group.busy <= order.index(fastest.job.lane)
    due = _due(requests, ended)
    if follows:
        due = max(due, newest.later)
    if older:
        plan.supersede([request.job for request in older], newest.job.pk)
    changes = _inherited(requests) if older else {}
    changes |= lanes.moved(using, newest.job, fastest.job)
    goes = changes.get("lane", newest.job.lane)
    if due > now:
        changes["due_at"] = due
        if follows and not any(request.held_back for request in requests):
            changes["reason"] = Reason.FOLLOWER
    elif goes != lane:
        changes["due_at"] = _place(requests, goes)
    plan.change(newest.job, changes)
    return due <= now and goes == lane


def _place(requests: list[Request], lane: object) -> datetime:
    # In the line of the lane in which it goes on: else it would go to its end with each request
    # that comes in a lane that is looked at sooner.
    waited = (r.job.due_at for r in requests if r.job.lane == lane and r.job.due_at)
    return min([requests[0].now, *waited])


def _due(requests: list[Request], ended: datetime | None) -> datetime:
    now = requests[0].now
    due = now
    if put_off := [request.job for request in requests if request.debounced]:
        latest = max(job.first_due_at for job in put_off)
        due = max(due, min(latest, *(job.max_due_at for job in put_off if job.max_due_at)))
    due = max([due, *(r.job.due_at for r in requests if r.held_back and r.job.due_at)])
    if ended is not None:
        # The database's clock may have been ahead when that run ended.
        due = max(due, min(ended, now) + requests[0].period)
    return due


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


def _uncovered(using: str, key: Key, requests: list[Request], plan: Plan) -> list[Request]:
    """``requests`` without those that a later, successful run has already answered."""
    # Only what has run before can tell: row numbers are given out before the commit, so a
    # higher number that succeeded may not have seen a lower one.
    ran = [request for request in requests if request.job.started_at is not None]
    for request in ran:
        if (survivor := cover(using, key, request.job.started_at)) is not None:
            plan.supersede([request.job], survivor)
            requests = [other for other in requests if other is not request]
    return requests
