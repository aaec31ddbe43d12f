"""Requests that add nothing: their job is there already, or what waits speaks for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from celery_guard.enqueue.declaration import Guarded
from celery_guard.jobs.models import Job
from celery_guard.jobs.states import State


def is_known(task: Guarded, identity: Mapping[str, Any], using: str) -> bool:
    """Whether this call is the same work as a job, or folds into one that waits."""
    jobs = Job.objects.using(using).filter(task=task.name)
    if (key := identity.get("key")) is not None and jobs.filter(key=key).exists():
        return True
    folded = identity.get("coalesce_key")
    return folded is not None and (
        jobs.filter(coalesce_key=folded, state=State.WAITING, due_at__isnull=False).exists()
    )
