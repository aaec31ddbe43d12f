"""The ledger by primary key, a range at a time: for what no index leads to, and nobody waits for."""

from __future__ import annotations

from django.db.models import Max, Min

from celery_guard.jobs.models import Job


def next_range(using: str, cursor: int, size: int) -> tuple[int, int] | None:
    """The first and last id of the next at most ``size`` ids after ``cursor``; None at the end."""
    jobs = Job.objects.using(using)
    # Gaps in the ids are jumped over, however wide.
    first = jobs.filter(pk__gt=cursor).aggregate(first=Min("pk"))["first"]
    if first is None:
        return None
    last = jobs.aggregate(last=Max("pk"))["last"] or first
    return first, min(last, first + size - 1)
