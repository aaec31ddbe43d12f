"""What stays where it is: effects without an answer, new dead letters, jobs that nobody sends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from datetime import datetime

from django.db import OperationalError
from django.db.models import Max

from celery_guard.enqueue.steering.models import Action, Switch
from celery_guard.jobs.clock import database_time, in_seconds
from celery_guard.jobs.models import Job
from celery_guard.jobs.states import Reason
from celery_guard.relay.costs import Costs
from celery_guard.relay.lead import find_lanes
from celery_guard.relay.presence import Worker, live_workers, window_of
from celery_guard.relay.reserve import bound_of
from celery_guard.settle.models import Effect
from celery_guard.settle.states import EffectState
from celery_guard.watch.bounded import bounded, timed_out
from celery_guard.watch.doctor.finding import Finding, warning
from celery_guard.watch.measuring import measure
from celery_guard.watch.spoken import spoken

LOOKED_AT = 100_000
"""The newest jobs that are looked through for dead letters; no index leads to them."""
STUCK = 60.0
"""Seconds for which nothing of a lane is sent, though something could be, before that is told."""
TIME_MOST = 5.0
"""Longest that one query on a lane may take, in seconds."""


def look_at_leftovers(using: str) -> Iterator[Finding]:
    """What waits for a person: effects without an answer, new dead letters; what was not sent."""
    unknown = Effect.objects.using(using).filter(state=EffectState.MANUAL).count()
    if unknown:
        yield warning(
            "effects",
            f"waiting for a person's word: {unknown}; did the provider apply them?",
            "Settle them in the admin.",
        )
    yield from _dead_letters(using)
    yield from _unsent(using)


def _dead_letters(using: str) -> Iterator[Finding]:
    jobs = Job.objects.using(using)
    newest = jobs.aggregate(newest=Max("pk"))["newest"] or 0
    recent = jobs.dead_letters().filter(
        pk__gt=newest - LOOKED_AT, error__isnull=False, finished_at__gt=in_seconds(-3600)
    )
    reasons = Counter(recent.values_list("reason", flat=True))
    if not reasons:
        return
    told = ", ".join(f"{reason} {count}" for reason, count in reasons.most_common())
    hint = (
        "`python manage.py guard_stats --dead-letters` and the admin say what went wrong; mend "
        "that, then replay them: guard_replay."
    )
    if Reason.UNKNOWN_TASK in reasons:
        hint = "unknown_task: restart the workers, they run older code. " + hint
    yield warning("dead letters", f"of the last hour, by reason: {told}", hint)


def _unsent(using: str) -> Iterator[Finding]:
    # A line behind a full window is a busy lane, not an outbox that stands still: what counts is
    # what could go and doesn't.
    now, workers, held = database_time(using), live_workers(using), _held(using)
    lanes = set() if "" in held else find_lanes(using) - held
    for lane in sorted(lanes):
        try:
            stuck = _stuck_since(using, lane, workers, now)
        except OperationalError as error:
            if not timed_out(error):
                raise
            yield warning(
                f"outbox of {lane}",
                f"could not be measured within {spoken(TIME_MOST)}",
                "Look at what the database is busy with.",
            )
            continue
        if stuck is not None and (age := (now - stuck).total_seconds()) > STUCK:
            yield warning(
                f"outbox of {lane}",
                f"a job could have been sent for {spoken(age)} and was not",
                "python manage.py guard_stats says more; see the lanes above, and the relay's log.",
            )


def _held(using: str) -> set[str]:
    """The lanes that a hold covers whole; ``""`` stands for all of them."""
    holds = Switch.objects.using(using).in_force().filter(action=Action.HOLD, task="", tenant="")
    return set(holds.values_list("lane", flat=True))


def _stuck_since(
    using: str, lane: str, workers: Collection[Worker], now: datetime
) -> datetime | None:
    with bounded(using, TIME_MOST):
        bound = bound_of(using, lane, workers, Costs(using))
        return measure(using, lane, window_of(lane, workers), now, bound).stuck_since
