"""The site's word on who may see a job, and where its result is."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, cast

from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest
from django.utils.module_loading import import_string

from celery_guard.conf import guard_settings
from celery_guard.jobs.models import Job

Hook = Callable[[HttpRequest, Job], Any]


def may_see(request: HttpRequest, job: Job) -> bool:
    """Whether ``status.owner`` says that the job is the requester's; without it, never."""
    path = guard_settings().status.owner
    return bool(path and hook("status.owner", path)(request, job))


def result_url(request: HttpRequest, job: Job) -> str | None:
    """Where ``status.result`` says that the result of a succeeded job is; None for nowhere."""
    path = guard_settings().status.result
    found = hook("status.result", path)(request, job) if path else None
    return None if found is None else str(found)


@functools.cache
def hook(setting: str, path: str) -> Hook:
    """The callable at ``path``.

    :raises ImproperlyConfigured: when there is none.
    """
    try:
        found = import_string(path)
    except ImportError as error:
        raise ImproperlyConfigured(f"{setting}: {error}") from error
    if not callable(found):
        raise ImproperlyConfigured(f"{setting}: {path!r} can't be called")
    return cast(Hook, found)
