"""The tables of admission: how much room there is, and the places that are kept."""

from __future__ import annotations

from django.db import models


class Gate(models.Model):
    """How many more requests one scope (a lane or a tenant) may let in before it is counted anew.

    ``room`` was exact at ``counted_at`` and falls by one with each place that is granted; what
    has left since is found by the next count. ``next_at`` is the time from which a tenant's rate
    lets the next request in. Until ``closed_until`` a lane that was under pressure stays closed.
    The scope ``fallback`` is of no lane or tenant: it paces the fallback, and counts by its slots.
    """

    scope = models.CharField(max_length=80, primary_key=True)
    room = models.IntegerField(default=0)
    counted_at = models.DateTimeField(null=True)
    next_at = models.DateTimeField(null=True)
    closed_until = models.DateTimeField(null=True)

    class Meta:
        app_label = "celery_guard"

    def __str__(self) -> str:
        return f"{self.scope}: {self.room}"


class Reservation(models.Model):
    """A place that is kept for one enqueue until ``until``.

    It counts as long as its row is there. Whoever removes it (the enqueue that consumes it, or a
    count that finds it over) locks it first; so one that an open transaction has consumed still
    counts, as a place or as the job, whatever the clock says.
    """

    id = models.BigAutoField(primary_key=True)
    lane = models.CharField(max_length=64)
    tenant = models.CharField(max_length=255, blank=True, default="")
    until = models.DateTimeField()

    class Meta:
        app_label = "celery_guard"
        indexes = [
            models.Index(fields=["lane"], name="celery_guard_reserved_lane"),
            models.Index(fields=["tenant"], name="celery_guard_reserved_tenant"),
        ]

    def __str__(self) -> str:
        return f"a place in {self.lane}"
