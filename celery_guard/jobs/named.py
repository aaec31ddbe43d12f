"""How a message names its job: the row's number, and the random id that the row must have.

The number alone is not enough. A database that was restored from a backup gives numbers out a
second time, and an old message in the broker would then run under somebody else's job.
"""

from __future__ import annotations

import dataclasses
import re
import uuid

from django.db.models import QuerySet

from celery_guard.jobs.models import Job

JOB_HEADER = "guard_job"
"""The one header the relay adds to a message: a :class:`NamedJob` as text."""

_FORM = re.compile(r"(\d{1,19})(?:/([0-9a-f]{32}))?", re.ASCII)


@dataclasses.dataclass(frozen=True, slots=True)
class NamedJob:
    """A job as a message names it; ``public_id`` is None in messages that give the number alone."""

    id: int
    public_id: uuid.UUID | None = None

    def __str__(self) -> str:
        return f"{self.id}/{self.public_id.hex}" if self.public_id else str(self.id)

    def row(self, using: str) -> QuerySet[Job]:
        """The row, if it still is that job's."""
        job = Job.objects.using(using).filter(pk=self.id)
        return job if self.public_id is None else job.filter(public_id=self.public_id)


def named_in(header: object) -> NamedJob | None:
    """The job that a message's header names; None for a header that is missing or unreadable."""
    if (form := _FORM.fullmatch(str(header))) is None:
        return None
    number, public_id = form.groups()
    return NamedJob(int(number), uuid.UUID(public_id) if public_id else None)
