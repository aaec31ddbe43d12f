"""The lanes as they were measured last."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse

from celery_guard.watch.admin.keyset import ReadOnlyAdmin
from celery_guard.watch.lanes import LaneView, oldest_snapshot, stale_after
from celery_guard.watch.ledgers import read_all_lanes
from celery_guard.watch.spoken import spoken

STUCK = 60.0
"""Seconds after which jobs that the relay leaves unsent are pointed at."""


class LaneAdmin(ReadOnlyAdmin):
    """One page: is anything late, and why."""

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Every lane's age against its objective, what it holds and who works on it."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        lanes = read_all_lanes()
        age = oldest_snapshot(lanes)
        context = {
            **self.admin_site.each_context(request),
            "title": str(self.opts.verbose_name_plural).capitalize(),
            "opts": self.opts,
            "media": self.media,
            "rows": [_row(lane) for lane in lanes],
            "measured": None if age is None else spoken(age),
            "stale": age is not None and age > stale_after(),
            **(extra_context or {}),
        }
        return TemplateResponse(request, "admin/celery_guard/lanesnapshot/lanes.html", context)


def _row(lane: LaneView) -> dict[str, Any]:
    return {
        "lane": lane,
        "age": spoken(lane.age),
        "objective": spoken(lane.objective),
        "stuck": spoken(lane.stuck_for) if lane.stuck_for > STUCK else "",
    }
