"""Names the ticks of Celery beat, so that however many beats there are, each tick is one job.

A tick is an entry of the schedule at the time at which it was due. Every beat works that time out
from its own last run, so it must come out alike for all of them: a crontab's is on its minute, and
an interval's is rounded down to the interval.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from celery.signals import beat_init

from celery_guard.enqueue.declaration import Guarded, Unkeyed
from celery_guard.enqueue.key import short
from celery_guard.outbox.capture import TICK_HEADER, Captured

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def identity_of_tick(task: Guarded, captured: Captured) -> dict[str, str]:
    """Key and fingerprint of a call that is a tick; empty for any other call.

    A task's own key goes before: it names the operation for whoever asks, not for beat alone.
    What beat works out anew for each tick, such as today's date, makes no other tick.
    """
    if not is_tick(task, captured):
        return {}
    name = f"tick:{captured.tick}"
    return {"key": short(name), "fingerprint": hashlib.sha256(name.encode()).hexdigest()[:32]}


def is_tick(task: Guarded, captured: Captured) -> bool:
    """Whether the call's only name is the tick that it belongs to."""
    unkeyed = isinstance(task.guard.key, Unkeyed) and task.guard.coalesce is None
    return unkeyed and bool(captured.tick)


@beat_init.connect(weak=False, dispatch_uid="celery_guard.ticks")
def name_ticks(sender: Any, **_: Any) -> None:
    """Let the scheduler of a beat that starts name each tick in a header, whatever its class."""
    scheduler = sender.scheduler
    usual = scheduler.apply_async

    def apply_async(entry: Any, producer: Any = None, advance: bool = True, **kwargs: Any) -> Any:
        if advance:
            # Celery looks at the next entry's options then; the due time is this one's.
            scheduler.reserve(entry)
        with _named(entry):
            return usual(entry, producer=producer, advance=False, **kwargs)

    scheduler.apply_async = apply_async


@contextlib.contextmanager
def _named(entry: Any) -> Iterator[None]:
    # Not a copy: a scheduler's own kind of entry is made in its own way.
    due, given = due_at(entry), entry.options
    if due is not None:
        name = f"{entry.name}@{due.isoformat()}"
        headers = {TICK_HEADER: name, **((given or {}).get("headers") or {})}
        entry.options = {**(given or {}), "headers": headers}
    try:
        yield
    finally:
        entry.options = given


def due_at(entry: Any) -> datetime | None:
    """When the tick that ``entry`` now makes was due; None where its schedule can't tell."""
    schedule, last = entry.schedule, entry.last_run_at
    every = getattr(schedule, "run_every", None)
    if isinstance(every, timedelta) and every and not getattr(schedule, "relative", False):
        # Due times of one beat are at least an interval apart, so none of them share a slot.
        return _EPOCH + (_utc(last + every) - _EPOCH) // every * every
    if hasattr(schedule, "remaining_delta"):
        begin, delta, _ = schedule.remaining_delta(last)
        return _utc(begin + delta)
    try:
        due = schedule.now() + schedule.remaining_estimate(last)
    except NotImplementedError:
        return None
    # The clock is read twice on this way.
    return (_utc(due) + timedelta(seconds=0.5)).replace(microsecond=0)


def _utc(when: datetime) -> datetime:
    return (when if when.tzinfo else when.replace(tzinfo=UTC)).astimezone(UTC)
