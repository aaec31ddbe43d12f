"""Lanes as if they had just been measured."""

from datetime import timedelta
from typing import Any

from django.utils import timezone

from celery_guard.enqueue.admission import measured
from celery_guard.models import LaneSnapshot


def measure(lane: str, *, ago: float = 0.0, age: float = 0.0, **found: Any) -> None:
    """Write the snapshot of ``lane``, taken ``ago`` seconds ago with the oldest job ``age`` old."""
    now = timezone.now()
    oldest = now - timedelta(seconds=age) if age else None
    values = {"taken_at": now - timedelta(seconds=ago), "oldest_due_at": oldest, **found}
    LaneSnapshot.objects.update_or_create(lane=lane, defaults=values)
    measured.forget()


def rated(rate: float, **more: Any) -> dict[str, Any]:
    """What makes a lane's rate known."""
    return {"completions_per_second": rate, "completions_total": 1000, **more}
