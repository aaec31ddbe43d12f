"""Has workers tell of ends that nobody has been told of."""

from __future__ import annotations

import logging

from celery_guard.conf import guard_settings
from celery_guard.events import emit
from celery_guard.faults import fault_point
from celery_guard.jobs.owed import untold
from celery_guard.jobs.sending import Lead, Sending


def to_be_told(using: str, lead: Lead) -> list[Sending]:
    """The messages of the lane's ended jobs that have to go out once more, each try counted."""
    found = untold(using, lead, guard_settings().sweep.resend_grace)
    if found.given_up:
        jobs = list(found.given_up)
        emit("relay.untellable", logging.WARNING, lane=lead.lane, jobs=jobs)
    if found.again:
        fault_point("relay.telling", *(sending.id for sending in found.again))
        emit("relay.untold", logging.WARNING, lane=lead.lane, count=len(found.again))
    return list(found.again)
