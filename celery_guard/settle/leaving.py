"""What an attempt leaves behind that ends badly while a call of its job has no answer."""

from __future__ import annotations

from django.db.models import Q

from celery_guard.events import emit
from celery_guard.jobs.clock import DatabaseNow, in_seconds
from celery_guard.jobs.running import Hold
from celery_guard.settle.models import Effect
from celery_guard.settle.states import OPEN, EffectState, Recovery

GIVE_UP = 86400.0
"""Seconds since an effect's intent after which a person has to decide."""
SOONEST, LATEST = 60.0, 3600.0
"""Seconds until the body runs again to look: less and less often, the longer it takes."""


def leave_open(hold: Hold) -> bool:
    """Whether an effect of the held job has no answer; then also say when it is looked into.

    Such a job does not end: a failed one is looked at by nobody, and whoever ran it again by hand
    would ask a question that is open.
    """
    # A newer attempt may be sending just now.
    newer = Q(state=EffectState.SENT, fence__gt=hold.fence)
    effects = Effect.objects.using(hold.using).filter(~newer, job_id=hold.job_id, state__in=OPEN)
    asking = list(effects.defer("answer").annotate(now=DatabaseNow()))
    for effect in asking:
        if effect.state != EffectState.MANUAL:
            age = (effect.now - effect.created_at).total_seconds()
            _leave(hold, effect, age)
    return bool(asking)


def _leave(hold: Hold, effect: Effect, age: float) -> None:
    alone = effect.recovery == Recovery.MANUAL or age > GIVE_UP
    unchanged = Effect.objects.using(hold.using).filter(
        pk=effect.pk, state=effect.state, fence=effect.fence
    )
    changed = unchanged.update(
        state=EffectState.MANUAL if alone else EffectState.UNKNOWN,
        look_at=None if alone else in_seconds(min(LATEST, max(SOONEST, age / 4))),
    )
    if alone and changed:
        emit("settle.needs_a_person", job=hold.job_id, effect=effect.name)
