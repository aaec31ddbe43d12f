"""One waiting request of a coalesce key, as the fold sees it."""

from __future__ import annotations

import dataclasses
from datetime import datetime, timedelta

from django.db.models import F, Q

from celery_guard.jobs.clock import DatabaseNow
from celery_guard.jobs.following import LOOK_AGAIN
from celery_guard.jobs.models import Job
from celery_guard.jobs.states import Reason

# A paused one was due when it was put aside; its due time is the switch's, not its own.
_ASKED = (Reason.NEW, Reason.ETA, Reason.FOLLOWER, Reason.REPLAY, Reason.PAUSED)


@dataclasses.dataclass(frozen=True, slots=True)
class Request:
    """A waiting job of a coalesce key, as the fold sees it."""

    job: Job
    now: datetime

    @property
    def debounced(self) -> bool:
        """Whether later requests put it off, up to ``max_due_at``."""
        job = self.job
        return job.max_due_at is not None and job.max_due_at > job.created_at

    @property
    def period(self) -> timedelta:
        """The least time between the end of a run and the next; 0 for none."""
        job = self.job
        if job.max_due_at is None or self.debounced:
            return timedelta()
        return job.created_at - job.max_due_at

    @property
    def held_back(self) -> bool:
        """Whether its due time was set by something that a newer request must not undo."""
        return self.job.reason not in _ASKED

    @property
    def takes_part(self) -> bool:
        """All but those that were asked for a later time."""
        return self.debounced or self.held_back or self.job.first_due_at <= self.now

    @property
    def later(self) -> datetime:
        """When it is looked at again while another job of its key has the turn."""
        return self.now + timedelta(seconds=LOOK_AGAIN)

    @property
    def expired(self) -> bool:
        """Past its expiry: it ends so, and speaks for nobody."""
        return self.job.expires_at is not None and self.job.expires_at <= self.now


# What takes part, or is past its expiry: as many requests for later as there are hide no due one.
CONCERNED = (
    Q(first_due_at__lte=DatabaseNow())
    | Q(max_due_at__gt=F("created_at"))
    | ~Q(reason__in=_ASKED)
    | Q(expires_at__lte=DatabaseNow())
)

NEEDED = (
    "task",
    "coalesce_key",
    "lane",
    "reason",
    "awaited",
    "created_at",
    "first_due_at",
    "due_at",
    "max_due_at",
    "expires_at",
    "started_at",
    "failures",
    "lost",
    "message",
)
"""The columns that a pass reads of them."""
