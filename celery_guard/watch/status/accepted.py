"""The answer of a view that has asked for work."""

from __future__ import annotations

from django.http import JsonResponse

from celery_guard.enqueue.handle import JobHandle
from celery_guard.watch.status.document import url_of
from celery_guard.watch.status.reading import read


def accepted(job: JobHandle) -> JsonResponse:
    """202 Accepted: where the job's status is (``Location``), and when to look (``Retry-After``).

    The body holds the same as JSON. It tells nothing of the job's state, so it is safe to give to
    whoever asked, also where the key belonged to a job that was there already. Costs two queries.

    :param job: what ``delay`` returned.
    :raises TypeError: for anything else.
    :raises ImproperlyConfigured: when ``celery_guard.urls`` is not in the URLconf.
    """
    if not isinstance(job, JobHandle):
        raise TypeError(f"accepted() takes what delay() of a guarded task returned, not {job!r}")
    reading = read(job.public_id, using=job.using)
    after = 1 if reading is None or reading.ask_after is None else reading.ask_after
    where = url_of(job)
    told = {"id": str(job.public_id), "url": where, "retry_after": after}
    answer = JsonResponse(told, status=202)
    answer["Location"] = where
    answer["Retry-After"] = str(after)
    answer["Cache-Control"] = "no-store"
    return answer
