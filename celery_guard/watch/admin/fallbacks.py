"""What the site ran itself while the broker was away."""

from __future__ import annotations

from celery_guard.watch.admin.keyset import ReadOnlyAdmin


class FallbackAdmin(ReadOnlyAdmin):
    """Each use of a slot: which job, on which host, how long, and what came of it."""

    list_display = (
        *("id", "task", "lane", "job", "host"),
        *("began_at", "until", "ended_at", "outcome"),
    )
