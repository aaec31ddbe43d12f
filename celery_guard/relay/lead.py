"""Who leads a lane: one leased row each, so that release order is exact.

A relay that was stopped for longer than its lease finds its rows under another owner and term;
its own statements compare both, so they match nothing.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection

from django.db import connections
from django.db.models import BooleanField, ExpressionWrapper, F, Q

from celery_guard.conf import guard_settings
from celery_guard.jobs.clock import DatabaseNow, in_seconds
from celery_guard.jobs.lazily import lazily
from celery_guard.jobs.sending import Lead
from celery_guard.relay.models import LaneLead

# A loose index scan: as many index look-ups as there are lanes, however many jobs there are.
_LANES_IN_USE = """
WITH RECURSIVE lanes(lane) AS (
    SELECT min(lane) FROM celery_guard_job
    UNION ALL
    SELECT (SELECT min(job.lane) FROM celery_guard_job AS job WHERE job.lane > lanes.lane)
    FROM lanes WHERE lanes.lane IS NOT NULL
)
SELECT lane FROM lanes WHERE lane IS NOT NULL
"""


def find_lanes(using: str) -> set[str]:
    """The lanes of the settings, and every other lane that holds a job."""
    with connections[using].cursor() as cursor:
        cursor.execute(_LANES_IN_USE)
        return {*guard_settings().lanes, *(lane for (lane,) in cursor.fetchall())}


def renew(using: str, owner: uuid.UUID, lease: float) -> dict[str, Lead]:
    """Hold on to what ``owner`` leads for ``lease`` more seconds; return what that still is."""
    mine = LaneLead.objects.using(using).filter(owner=owner)
    # If a crash of the server undoes it, the lead ends sooner, and everybody can see that.
    lazily(mine).update(lead_until=in_seconds(lease))
    return {
        lane: Lead(lane=lane, owner=owner, term=term)
        for lane, term in mine.values_list("lane", "term")
    }


def take(using: str, owner: uuid.UUID, lanes: Collection[str], lease: float) -> dict[str, Lead]:
    """Take every lane of ``lanes`` that nobody leads now, for ``lease`` seconds."""
    leads = LaneLead.objects.using(using)
    rows = leads.filter(lane__in=lanes).annotate(free=_FREE).values_list("lane", "free")
    free = dict(rows)
    if missing := sorted(set(lanes) - free.keys()):
        leads.bulk_create([LaneLead(lane=lane) for lane in missing], ignore_conflicts=True)
    # One row at a time: two relays that take several lanes can't deadlock.
    takes = (_take(using, owner, lane, lease) for lane in sorted(lanes) if free.get(lane, True))
    return {lead.lane: lead for lead in takes if lead is not None}


_IS_FREE = Q(owner=None) | Q(lead_until__lte=DatabaseNow())
_FREE = ExpressionWrapper(_IS_FREE, output_field=BooleanField())


def _take(using: str, owner: uuid.UUID, lane: str, lease: float) -> Lead | None:
    row = LaneLead.objects.using(using).filter(lane=lane)
    taken = row.filter(_IS_FREE).update(
        owner=owner, term=F("term") + 1, lead_until=in_seconds(lease), failing_since=None
    )
    # Nobody can have taken it since: our lease has only just begun.
    term = row.filter(owner=owner).values_list("term", flat=True).first() if taken else None
    return None if term is None else Lead(lane=lane, owner=owner, term=term)


def suspected(using: str, owner: uuid.UUID) -> set[str]:
    """The lanes led by ``owner`` of which the sweep has evidence that messages were lost."""
    evidence = Q(proven_sent_at__isnull=False) | Q(idle_since__isnull=False)
    mine = LaneLead.objects.using(using).filter(evidence, owner=owner)
    return set(mine.values_list("lane", flat=True))


def resign(using: str, owner: uuid.UUID) -> int:
    """Give up every lead of ``owner``, so that a stand-by need not wait for the lease."""
    return LaneLead.objects.using(using).filter(owner=owner).update(owner=None, lead_until=None)
