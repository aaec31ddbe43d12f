"""``{% load celery_guard %}``: a job's status in a page of the site's own."""

from __future__ import annotations

import uuid
from typing import Any

from django import template
from django.utils.safestring import SafeString, mark_safe

from celery_guard.enqueue.handle import JobHandle
from celery_guard.jobs.adding import public_id_of
from celery_guard.watch.status.hooks import may_see
from celery_guard.watch.status.page import fragment
from celery_guard.watch.status.reading import read

register = template.Library()


@register.simple_tag(takes_context=True)
def job_status(context: dict[str, Any], job: JobHandle | uuid.UUID | str) -> SafeString:
    """The status of ``job`` (a handle or a public id), which keeps itself current.

    Nothing at all for a job that is unknown or, as ``status.owner`` says, somebody else's; a
    variable that is empty or holds something else is no job.
    """
    request = context["request"]
    public_id = job.public_id if isinstance(job, JobHandle) else public_id_of(str(job))
    reading = read(public_id)
    if reading is None or not may_see(request, reading.job):
        return SafeString("")
    return mark_safe(fragment(request, reading))  # noqa: S308 - rendered, and escaped, by a template
