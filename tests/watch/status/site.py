"""What the test site says about its jobs: the tenant is the name of the user who asked."""

from __future__ import annotations

from django.http import HttpRequest

from celery_guard.models import Job

STATUS = {"owner": "tests.watch.status.site.owns", "result": "tests.watch.status.site.result"}


def owns(request: HttpRequest, job: Job) -> bool:
    """Whether the user asked for the job."""
    return bool(job.tenant) and job.tenant == request.user.get_username()


def result(request: HttpRequest, job: Job) -> str | None:
    """Jobs with a key have a page of their own."""
    return f"/results/{job.key}" if job.key else None


not_callable = "a text"
