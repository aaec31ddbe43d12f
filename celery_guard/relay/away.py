"""Whether the broker is away, as a fact in the database: the leader of a lane writes it on its row.

A web process never asks the broker. It reads what the relay that leads the lane has found out by
sending; a fact whose relay has fallen silent counts no more, and neither does that of an earlier
leader.
"""

from __future__ import annotations

from collections.abc import Mapping

from django.db.models import Q
from django.db.models.functions import Coalesce

from celery_guard.jobs.clock import DatabaseNow, in_seconds
from celery_guard.jobs.sending import Lead
from celery_guard.relay.models import LaneLead


def is_away(using: str, lane: str, seconds: float) -> bool:
    """Whether nothing of ``lane`` has reached the broker for ``seconds``, says a living relay."""
    alive = Q(owner__isnull=False, lead_until__gt=DatabaseNow())
    leads = LaneLead.objects.using(using).filter(alive, lane=lane)
    return leads.filter(failing_since__lte=in_seconds(-seconds)).exists()


class Word:
    """What one relay last wrote of the lanes that it leads: a change is written once."""

    def __init__(self, using: str) -> None:
        self._using = using
        self._said: dict[Lead, bool] = {}

    def give(self, away: Mapping[Lead, bool]) -> None:
        """Write for each of these leads whether its broker is away, where that has changed."""
        # A lead just taken says that nothing is known, which is what its row says too.
        before = self._said
        self._said = {lead: before.get(lead, False) for lead in away}
        for lead, gone in away.items():
            if gone is not self._said[lead]:
                say(self._using, lead, away=gone)
                self._said[lead] = gone


def say(using: str, lead: Lead, *, away: bool) -> bool:
    """Write that the broker is away, from now on, or there; False when it is led by another."""
    row = LaneLead.objects.using(using).filter(lane=lead.lane, owner=lead.owner, term=lead.term)
    since = Coalesce("failing_since", DatabaseNow()) if away else None
    return row.update(failing_since=since) == 1
