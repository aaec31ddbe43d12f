"""The same writes as :mod:`celery_guard.outbox.store`, for databases without PostgreSQL's CTEs."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from django.db import connections, transaction
from django.db.models.expressions import Combinable

from celery_guard.jobs.adding import NewJob, due_of, expires_of
from celery_guard.jobs.clock import DatabaseNow, Instant, in_seconds, now_sql
from celery_guard.jobs.models import Job
from celery_guard.jobs.states import State
from celery_guard.outbox.capture import Captured
from celery_guard.outbox.models import OutboxMessage

Pair = tuple[NewJob, Captured]


def new_message(using: str, captured: Captured) -> OutboxMessage:
    """Write the message of ``captured``."""
    return OutboxMessage.objects.using(using).create(
        body=captured.body, envelope=captured.envelope_text, created_at=DatabaseNow()
    )


def insert_many(using: str, pairs: Sequence[Pair], order: Sequence[int]) -> dict[uuid.UUID, int]:
    """Write ``pairs`` in this ``order``, due in their own; return the ids of the new ones."""
    # Every statement has a clock of its own: one base for all keeps the order of release.
    now = _now(using)
    found: dict[uuid.UUID, int] = {}
    for n in order:
        new, captured = pairs[n]
        soonest = now + timedelta(seconds=new.delay)
        due = max(new.due_at or soonest, soonest) + timedelta(microseconds=n)
        if (job_id := insert(using, new, captured, Instant(due))) is not None:
            found[new.public_id] = job_id
    return found


def _now(using: str) -> datetime:
    connection = connections[using]
    with connection.cursor() as cursor:
        # With parameters, if only none: SQLite's text has its percent signs doubled.
        cursor.execute("SELECT " + now_sql(connection), [])
        (value,) = cursor.fetchone()
    when = value if isinstance(value, datetime) else datetime.fromisoformat(value)
    return when if when.tzinfo else when.replace(tzinfo=UTC)


def insert(
    using: str, new: NewJob, captured: Captured, due: Combinable | None = None
) -> int | None:
    """Write one job with its message; None when its key or public id is taken."""
    with transaction.atomic(using=using):
        message = new_message(using, captured)
        row = _row(new, message, due_of(new) if due is None else due)
        # The INSERT that ignores conflicts doesn't say whether it inserted: ask for our message.
        Job.objects.using(using).bulk_create([row], ignore_conflicts=True)
        mine = Job.objects.using(using).filter(public_id=new.public_id, message=message)
        job_id = mine.values_list("pk", flat=True).first()
        if job_id is None:
            message.delete()
        return job_id


def _row(new: NewJob, message: OutboxMessage, due: Combinable) -> Job:
    return Job(
        public_id=new.public_id,
        task=new.task,
        key=new.key,
        fingerprint=new.fingerprint,
        lane=new.lane,
        tenant=new.tenant,
        dependency=new.dependency,
        coalesce_key=new.coalesce_key,
        max_due_at=None if new.max_delay is None else in_seconds(new.max_delay),
        state=State.WAITING,
        reason=new.reason,
        plain=new.plain,
        mode=new.mode,
        awaited=new.awaited,
        created_at=DatabaseNow(),
        first_due_at=due,
        due_at=due,
        expires_at=expires_of(new),
        survivor_id=new.survivor_id,
        message=message,
    )
