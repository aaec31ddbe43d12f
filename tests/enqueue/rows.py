"""Looking at what was written."""

import contextlib
from collections.abc import Iterator
from typing import Any

from celery_guard.jobs.models import Job
from celery_guard.outbox.envelope import Envelope
from celery_guard.outbox.models import OutboxMessage


def jobs(using: str = "default") -> list[Job]:
    """All jobs in the order of their release."""
    return list(Job.objects.using(using).order_by("due_at", "pk"))


def keys(using: str = "default") -> list[str | None]:
    """Their keys."""
    return [job.key for job in jobs(using)]


def message_of(job: Job) -> OutboxMessage:
    """The job's current message."""
    return OutboxMessage.objects.using(job._state.db).get(pk=job.message_id)


def envelope_of(job: Job) -> Envelope:
    """Its envelope."""
    return Envelope.decode(message_of(job).envelope)


def headers_of(job: Job) -> dict[str, Any]:
    """The headers of its message."""
    return envelope_of(job).headers


def counts(using: str = "default") -> tuple[int, int]:
    """How many jobs and messages there are."""
    return Job.objects.using(using).count(), OutboxMessage.objects.using(using).count()


@contextlib.contextmanager
def celery_settings(app: Any, **changed: Any) -> Iterator[None]:
    """The app's settings with some of them changed."""
    before = dict(app.conf.changes)
    try:
        for name, value in changed.items():
            setattr(app.conf, name, value)
        yield
    finally:
        app.conf.changes.clear()
        app.conf.changes.update(before)


def end(job_id: int, state: str, using: str = "default") -> None:
    """Make a job look as if it had ended."""
    rows = Job.objects.using(using).filter(pk=job_id)
    rows.update(state=state, due_at=None, sent_at=None, finished_at="2020-01-01T00:00:00Z")
