"""The duty that counts the dead letters of each lane, by walking the ledger a range at a time.

No index leads to dead letters alone: it would be one more to keep up for every job. So the walk
looks through ``RANGE`` ids in a statement and goes on for ``SPEND`` seconds a round; its place
is on the duty's row and what it has found so far in the ``Counter`` table. A ledger of a million
jobs is walked in one round or a few; until the first walk is over, the numbers are not known.
"""

from __future__ import annotations

import collections
import time

from django.db import transaction

from celery_guard.conf import guard_settings
from celery_guard.jobs.models import Job
from celery_guard.jobs.ranges import next_range
from celery_guard.relay.duties import duty
from celery_guard.relay.models import Duty
from celery_guard.watch import counters

RANGE = 20_000
"""Ids looked through in one statement."""
SPEND = 0.5
"""Seconds that one round may take."""
FOUND = "dead_letters"
"""What the last whole walk found, by lane; the row of no lane says that there was one."""
SO_FAR = "dead_letters.walk"

Found = collections.Counter[str]


@duty(FOUND, every=lambda: 12 * guard_settings().snapshot.every)
def count_dead_letters(using: str) -> None:
    """Go on with the walk; at the end of the ledger, publish what it found and start over."""
    place = Duty.objects.using(using).filter(name=FOUND)
    begin = place.values_list("cursor", flat=True).first() or 0
    cursor, found = _walk(using, begin, until=time.monotonic() + SPEND)
    # The place and what was found on the way move together, so nothing is counted twice.
    with transaction.atomic(using=using):
        place.update(cursor=cursor)
        if begin:
            found.update(counters.totals(using, SO_FAR))
        counters.replace(using, SO_FAR if cursor else FOUND, found if cursor else {**found, "": 1})


def dead_letters(using: str) -> dict[str, int] | None:
    """Dead letters by lane as of the last walk; None before there was one."""
    found = counters.totals(using, FOUND)
    return found if found.pop("", 0) else None


def _walk(using: str, cursor: int, *, until: float) -> tuple[int, Found]:
    found: Found = collections.Counter()
    while (bounds := next_range(using, cursor, RANGE)) is not None:
        _, last = bounds
        # A purged one keeps its state and loses its error: nobody can decide about it any more.
        dead = Job.objects.using(using).dead_letters().filter(error__isnull=False)
        found.update(dead.filter(pk__gt=cursor, pk__lte=last).values_list("lane", flat=True))
        cursor = last
        if time.monotonic() > until:
            return cursor, found
    return 0, found
