"""What is told of a job: a fixed list of fields, none of which holds what people wrote."""

from __future__ import annotations

import hashlib
import json
from datetime import datetime
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse

from celery_guard.enqueue.handle import JobHandle
from celery_guard.jobs.models import Job
from celery_guard.jobs.states import State
from celery_guard.watch.status.hooks import may_see, result_url
from celery_guard.watch.status.reading import Reading

_ENDED_BADLY = (State.FAILED, State.DEAD, State.CANCELLED, State.EXPIRED)
_VOLATILE = ("predicted_wait", "retry_after")


def url_of(job: Job | JobHandle) -> str:
    """The address of the job's status.

    :raises ImproperlyConfigured: when the site has not routed it.
    """
    try:
        return reverse("celery_guard:status", args=[job.public_id])
    except NoReverseMatch as error:
        raise ImproperlyConfigured(
            'write path("jobs/", include("celery_guard.urls")) into your URLconf'
        ) from error


def document(request: HttpRequest, reading: Reading) -> dict[str, Any]:
    """The job as JSON holds it. Times are ISO 8601, waits in seconds."""
    job, shown = reading.job, reading.standing
    return {
        "id": str(job.public_id),
        "url": url_of(job),
        "state": shown.state,
        "reason": shown.reason if shown.state == State.WAITING else "",
        "over": reading.over,
        "progress": progress_of(shown),
        "attempt": shown.starts,
        "created_at": _iso(job.created_at),
        "due_at": _iso(shown.due_at if shown.state == State.WAITING else None),
        "started_at": _iso(shown.started_at),
        "finished_at": _iso(shown.finished_at),
        "predicted_wait": None if reading.wait is None else round(reading.wait, 1),
        "retry_after": reading.ask_after,
        "cancel_asked": shown.cancel_asked_at is not None and not reading.over,
        "error": {"code": shown.reason} if shown.state in _ENDED_BADLY else None,
        "result": result_url(request, shown) if shown.state == State.SUCCEEDED else None,
        "survivor": _survivor(request, reading),
    }


def progress_of(job: Job) -> dict[str, int | None] | None:
    """How far the body said that it has come, all of it after a success; None when it never did."""
    if job.done is None:
        return None
    if job.total is None:
        return {"done": job.done, "total": None}
    # The body's last word may have come less than a second before its end.
    done = job.total if job.state == State.SUCCEEDED else min(job.done, job.total)
    return {"done": done, "total": job.total}


def _survivor(request: HttpRequest, reading: Reading) -> dict[str, str] | None:
    shown = reading.standing
    # Somebody else's request may do the work of this one: its address is not this one's business.
    if shown is reading.job or not may_see(request, shown):
        return None
    return {"id": str(shown.public_id), "url": url_of(shown)}


def etag_of(told: dict[str, Any], *more: str) -> str:
    """A weak tag that changes when the job does; a new prediction alone is no news."""
    steady = {name: value for name, value in told.items() if name not in _VOLATILE}
    text = json.dumps([steady, *more], sort_keys=True)
    return f'W/"{hashlib.sha256(text.encode()).hexdigest()[:32]}"'


def _iso(time: datetime | None) -> str | None:
    return None if time is None else time.isoformat()
