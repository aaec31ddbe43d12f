"""Has workers tell of ends that nobody has been told of."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta

from celery_guard.conf import guard_settings
from celery_guard.events import emit
from celery_guard.faults import fault_point
from celery_guard.jobs.clock import DatabaseNow
from celery_guard.jobs.owed import TOO_LATE, overlooked, untold
from celery_guard.jobs.sending import Lead, Sending
from celery_guard.relay.duties import duty
from celery_guard.relay.lead import find_lanes
from celery_guard.relay.models import Duty

LATE = 20
"""Graces from an end to the second look: its transaction may stay open for so long."""
TICK = timedelta(microseconds=1)


def to_be_told(using: str, lead: Lead) -> list[Sending]:
    """The messages of the lane's ended jobs that have to go out once more, each try counted."""
    found = untold(using, lead, _grace())
    if found.given_up:
        jobs = list(found.given_up)
        emit("relay.untellable", logging.WARNING, lane=lead.lane, jobs=jobs)
    if found.again:
        fault_point("relay.telling", *(sending.id for sending in found.again))
        emit("relay.untold", logging.WARNING, lane=lead.lane, count=len(found.again))
    return list(found.again)


@duty("late_ends", every=lambda: 2 * _grace())
def look_back(using: str) -> None:
    """Look a second time at the ends of ``LATE`` graces ago; the cursor is how far that has come."""
    place = Duty.objects.using(using).filter(name="late_ends")
    cursor, now = place.annotate(now=DatabaseNow()).values_list("cursor", "now")[0]
    epoch = datetime(1970, 1, 1, tzinfo=now.tzinfo)
    last = now - min(timedelta(seconds=LATE * _grace()), TOO_LATE / 2)
    since = epoch + cursor * TICK
    # At the first time, and after the clock was set back, the newest alone.
    since = max(since, now - TOO_LATE) if cursor > 0 and since < last else last - _period()
    count = sum(overlooked(using, lane, since, last) for lane in sorted(find_lanes(using)))
    place.update(cursor=(last - epoch) // TICK)
    if count:
        emit("relay.overlooked", logging.WARNING, count=count)


def _period() -> timedelta:
    return timedelta(seconds=2 * _grace())


def _grace() -> float:
    return guard_settings().sweep.resend_grace
