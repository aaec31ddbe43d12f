"""Plain jobs: messages of unguarded tasks. They go when they are sent.

Nobody claims them, so a relay that dies between the broker's answer and the delete leaves a
row that looks sent; the next relay sends it again, and such a message can arrive twice.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from django.db import connections, transaction

from celery_guard.jobs.clock import in_seconds
from celery_guard.jobs.models import Job
from celery_guard.jobs.sending import Sending, by_time, marked
from celery_guard.jobs.states import State
from celery_guard.outbox.models import OutboxMessage

MOST_AT_ONCE = 500


def forget(using: str, sendings: Sequence[Sending]) -> int:
    """Remove published plain jobs and their messages; return how many jobs."""
    gone = 0
    for mates in by_time(s for s in sendings if s.plain).values():
        with transaction.atomic(using=using):
            mine = marked(using, mates).filter(plain=True)
            held = dict(mine.order_by("pk").select_for_update().values_list("pk", "message_id"))
            OutboxMessage.objects.using(using).filter(pk__in=held.values()).delete()
            # Not delete(): a plain job has no attempts or anything else that would go with it.
            gone += Job.objects.using(using).filter(pk__in=held)._raw_delete(using)
    return gone


def recover(using: str, lanes: Collection[str], seconds: float, held: Collection[int]) -> set[str]:
    """Make due again the plain jobs that some relay marked over ``seconds`` ago and left.

    ``held`` are those that the caller itself still has in hand; return the lanes of the others.
    """
    # Said to be set as well: of a clock's value PostgreSQL makes no index condition.
    left = Job.objects.using(using).filter(
        lane__in=lanes,
        sent_at__isnull=False,
        sent_at__lte=in_seconds(-seconds),
        plain=True,
        state=State.WAITING,
    )
    skips = connections[using].features.has_select_for_update_skip_locked
    with transaction.atomic(using=using):
        rows = left.exclude(pk__in=held).select_for_update(skip_locked=skips)
        # Not in id order: that would be a walk through the table instead of the lanes' index.
        found = dict(rows.order_by("lane", "sent_at").values_list("pk", "lane")[:MOST_AT_ONCE])
        left.filter(pk__in=found).update(sent_at=None)
    return set(found.values())
