"""The duty that counts the dead letters of each lane, by walking the ledger a range at a time.

No index leads to dead letters alone: it would be one more to keep up for every job. So the walk
looks through ``RANGE`` ids in a statement and goes on for ``SPEND`` seconds a round; its place
is on the duty's row and what it has found so far in the ``Counter`` table. A ledger of a million
jobs is walked in one round or a few; until the first walk is over, the numbers are not known.

A ledger that nobody writes to is not walked again, where the server counts the writes to a table
(PostgreSQL): an idle site must not read its history every minute.
"""

from __future__ import annotations

import collections
import time

from django.db import connections, transaction
from django.db.models import F

from celery_guard.conf import guard_settings
from celery_guard.jobs.models import Job
from celery_guard.jobs.ranges import next_range
from celery_guard.relay.duties import duty
from celery_guard.relay.models import Duty
from celery_guard.watch import counters
from celery_guard.watch.models import Counter

RANGE = 20_000
"""Ids looked through in one statement."""
SPEND = 0.5
"""Seconds that one round may take."""
FOUND = "dead_letters"
"""What the last whole walk found, by lane; the row of no lane says that there was one."""
SO_FAR = "dead_letters.walk"
WRITES = "dead_letters.writes"
"""How many writes the ledger had seen when the last walk began."""
REST_MOST = 60
"""Rounds after which it is walked anyway: a server that crashes forgets what it has counted."""

Found = collections.Counter[str]


@duty(FOUND, every=lambda: 12 * guard_settings().snapshot.every)
def count_dead_letters(using: str) -> None:
    """Go on with the walk; at the end of the ledger, publish what it found and start over."""
    place = Duty.objects.using(using).filter(name=FOUND)
    begin = place.values_list("cursor", flat=True).first() or 0
    # Before the walk: whatever is written while it lasts has the next one look again.
    writes = 0 if begin else _writes(using)
    if writes and _rests(using, writes):
        return
    cursor, found = _walk(using, begin, until=time.monotonic() + SPEND)
    # The place and what was found on the way move together, so nothing is counted twice.
    with transaction.atomic(using=using):
        place.update(cursor=cursor)
        if not begin:
            counters.replace(using, WRITES, {"": writes, "rested": 0})
        else:
            found.update(counters.totals(using, SO_FAR))
        counters.replace(using, SO_FAR if cursor else FOUND, found if cursor else {**found, "": 1})


def _writes(using: str) -> int:
    """The writes to the ledger so far, as PostgreSQL has counted them; 0 where that is not known."""
    connection = connections[using]
    # What the open transaction itself has written is not counted yet.
    if connection.vendor != "postgresql" or connection.in_atomic_block:
        return 0
    with connection.cursor() as cursor:
        cursor.execute(_COUNTED, [Job._meta.db_table])
        return int(cursor.fetchone()[0])


_COUNTED = """SELECT pg_stat_get_tuples_inserted(oid) + pg_stat_get_tuples_updated(oid)
    + pg_stat_get_tuples_deleted(oid) FROM (SELECT %s::regclass::oid AS oid) AS job"""


def _rests(using: str, writes: int) -> bool:
    before = counters.totals(using, WRITES)
    if before.get("") != writes or dead_letters(using) is None:
        return False
    rested = Counter.objects.using(using).filter(name=WRITES, lane="rested", value__lt=REST_MOST)
    return bool(rested.update(value=F("value") + 1))


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
