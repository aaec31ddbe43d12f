"""The app's page in the admin: is anything late, why, and what waits for a person."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from typing import Any

from django.db import connections
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.translation import gettext as _

from celery_guard.conf import guard_settings
from celery_guard.jobs.states import TERMINAL
from celery_guard.settle.models import Effect
from celery_guard.settle.states import EffectState
from celery_guard.watch import beside, brokers, samples
from celery_guard.watch.admin.curves import HEIGHT, MINUTES, WIDTH, Curve, curve, height_of
from celery_guard.watch.failures import groups
from celery_guard.watch.lanes import LaneView, oldest_snapshot, stale_after
from celery_guard.watch.ledgers import read_all_lanes
from celery_guard.watch.limits import limits_now
from celery_guard.watch.models import LaneSample
from celery_guard.watch.paused import in_force
from celery_guard.watch.spoken import spoken

EFFECTS_MOST = 20
UNDECIDED = (EffectState.MANUAL, EffectState.UNKNOWN)
ASKED = (*UNDECIDED, EffectState.SENT)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A queue of the broker as it is shown; ``age`` is empty where nobody knows it."""

    queue: str
    messages: int
    age: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One lane as it is shown. ``goal`` is the height of the objective in the curve of ages.

    ``broker`` is what the lane's queue holds in the broker, None while that is not known.
    """

    lane: LaneView
    broker: Waiting | None
    age: str
    objective: str
    trouble: str
    drain: str
    used: int
    ages: Curve
    goal: str
    arrivals: Curve
    completions: Curve


def undecided() -> Q:
    """Effects about which a person may decide: the call of a job that has ended is not under way."""
    sent = Q(state=EffectState.SENT, job__state__in=TERMINAL)
    return Q(state__in=ASKED) & (Q(state__in=UNDECIDED) | sent)


def dashboard(request: HttpRequest) -> dict[str, Any]:
    """What the page shows to this operator, in six queries for each ledger at most.

    One more while somebody has set limits.
    """
    using, user = guard_settings().using, request.user
    shown: dict[str, Any] = {"width": WIDTH, "height": HEIGHT}
    if user.has_perm("celery_guard.view_lanesnapshot"):
        shown.update(_lanes(using))
        shown["paused"] = in_force([using])
        cards = shown["cards"]
        limited = any(card.lane.limited for card in cards)
        # Without a snapshot nothing is known of it yet.
        shown["changed"] = limits_now(set_only=True) if limited or not cards else []
    if user.has_perm("celery_guard.view_attempt"):
        shown["failures"] = groups(using)
        shown["may_replay"] = user.has_perm("celery_guard.replay_job")
    if user.has_perm("celery_guard.view_effect"):
        shown["effects"] = _effects(using)
        shown["may_settle"] = user.has_perm("celery_guard.settle_effect")
    return shown


def _lanes(using: str) -> dict[str, Any]:
    lanes = read_all_lanes()
    age = oldest_snapshot(lanes)
    # What they were read at, by the database's clock; without lanes there is nothing to draw.
    now = samples.minute_of(max((lane.read_at for lane in lanes), default=timezone.now()))
    minutes = samples.recent(using, now - timedelta(minutes=MINUTES)) if lanes else {}
    waiting = _in_broker(using) if lanes else {}
    own = {lane.queue for lane in lanes}
    return {
        "cards": [
            _card(lane, minutes.get(lane.name, []), now, waiting.get(lane.queue)) for lane in lanes
        ],
        # Work that is not guarded, and of queues that no lane has.
        "others": [one for one in waiting.values() if one.queue not in own and one.messages],
        "measured": None if age is None else spoken(age),
        "stale": age is not None and age > stale_after(),
    }


def _in_broker(using: str) -> dict[str, Waiting]:
    return {
        one.queue: Waiting(
            queue=one.queue,
            messages=one.messages,
            age="" if one.age is None else spoken(one.age),
        )
        for one in brokers.in_broker(beside.read(using, brokers.BROKER))
    }


def _card(lane: LaneView, minutes: list[LaneSample], now: Any, broker: Waiting | None) -> Card:
    ages = curve(minutes, lambda s: s.age, until=now, top=lane.objective * 1.25)
    rates = [max(s.arrivals_per_second, s.completions_per_second) for s in minutes]
    highest = max(rates, default=0.0)
    return Card(
        lane=lane,
        broker=broker,
        age=spoken(lane.age),
        objective=spoken(lane.objective),
        trouble=_trouble(lane),
        drain=_drain(lane),
        used=min(100, round(100 * lane.age / lane.objective)),
        ages=ages,
        goal=height_of(lane.objective, ages.top),
        arrivals=curve(minutes, lambda s: s.arrivals_per_second, until=now, top=highest),
        completions=curve(minutes, lambda s: s.completions_per_second, until=now, top=highest),
    )


def _trouble(lane: LaneView) -> str:
    if lane.paused:
        return _("paused")
    if lane.stopped:
        return _("late, nothing starts") if lane.slots else _("late, no worker")
    return _("late") if lane.late else ""


def _drain(lane: LaneView) -> str:
    if not lane.ready:
        return _("empty")
    faster = lane.completions - lane.arrivals
    return spoken(lane.ready / faster) if faster > 0.01 else _("not in sight")


def _effects(using: str) -> list[Effect]:
    effects = Effect.objects.using(using)
    waiting = effects.filter(undecided())
    if connections[using].features.allow_sliced_subqueries_with_in:
        # A few of each state, in the order of the index: all together would be sorted first.
        few = [_few(effects.filter(undecided(), state=state)) for state in sorted(ASKED)]
        waiting = effects.filter(pk__in=few[0].union(*few[1:], all=True))
    found = waiting.select_related("job").defer("job__result", "job__error", "answer")
    return list(found.order_by("state", "look_at")[:EFFECTS_MOST])


def _few(effects: QuerySet[Effect]) -> QuerySet[Effect, Any]:
    return effects.order_by("look_at").values("pk")[:EFFECTS_MOST]
