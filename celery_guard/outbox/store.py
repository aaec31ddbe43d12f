"""Writes a job and its message: one statement on PostgreSQL, two rows or none everywhere."""

from __future__ import annotations

import base64
import itertools
import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any

from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from celery_guard.conf import guard_settings
from celery_guard.errors import PayloadTooLarge
from celery_guard.faults import fault_point
from celery_guard.jobs import adding, on_wire
from celery_guard.jobs.adding import NewJob
from celery_guard.jobs.models import Job
from celery_guard.jobs.states import RERUNNABLE
from celery_guard.outbox import portable
from celery_guard.outbox.capture import Captured
from celery_guard.outbox.models import OutboxMessage
from celery_guard.outbox.portable import Pair, new_message

# One text for every call, without a name: behind a transaction pooler a prepared statement would
# be another session's. The plans are the functions' anyway.
_INSERT = on_wire.function("celery_guard_insert_1", 20)
_INSERT_DUE = on_wire.function("celery_guard_insert_due_1", 10)
_INSERT_DUE_PLACED = on_wire.function("celery_guard_insert_due_placed_1", 11)
_INSERT_PLACED = on_wire.function("celery_guard_insert_placed_1", 21)
_INSERT_MANY = on_wire.function("celery_guard_insert_many_1", 2)

_FIELDS = (
    "public_id",
    "task",
    "key",
    "fingerprint",
    "lane",
    "tenant",
    "reason",
    "plain",
    "awaited",
    "due_at",
    "delay",
    "expires_at",
    "expires_in",
    "survivor_id",
    "dependency",
    "coalesce_key",
    "max_delay",
    "mode",
)
_values = attrgetter(*_FIELDS)


def check_size(captured: Captured) -> None:
    """Refuse a message over the limit.

    :raises PayloadTooLarge: with both sizes, in bytes.
    """
    limit = guard_settings().outbox.payload_limit
    if len(captured.body) > limit:
        raise PayloadTooLarge(
            f"{captured.task}: the arguments take {len(captured.body):,} bytes, the limit is "
            f"{limit:,}; pass a reference instead, or raise outbox.payload_limit"
        )


def insert(using: str, new: NewJob, captured: Captured, place: int | None = None) -> int | None:
    """Write one job with its message; None when its key or public id is taken.

    :param place: the reservation that ends with it, where :func:`ends_places`; the job's id is
        negative where it was over.
    """
    fault_point("outbox.writing")
    job_id = _insert(using, new, captured, place)
    fault_point("outbox.written", *([] if job_id is None else [abs(job_id)]))
    return job_id


def _insert(using: str, new: NewJob, captured: Captured, place: int | None) -> int | None:
    connection = connections[using]
    if connection.vendor != "postgresql":
        return portable.insert(using, new, captured)
    given = (*_values(new), captured.body, captured.envelope_text)
    if place is None:
        job_id = on_wire.called(connection, _INSERT, given)
    else:
        job_id = on_wire.called(connection, _INSERT_PLACED, (*given, place))
    return None if job_id is None else int(job_id)


def insert_due(
    connection: BaseDatabaseWrapper, values: Sequence[Any], place: int | None = None
) -> int | None:
    """Write one job that is due now, with its message; None when its key is taken.

    The values are those of ``insert_due_1.sql``, where :func:`reads_records` says so.

    :param place: the reservation that ends with it; the job's id is negative where it was over.
    """
    fault_point("outbox.writing")
    if place is None:
        job_id = on_wire.called(connection, _INSERT_DUE, values)
    else:
        job_id = on_wire.called(connection, _INSERT_DUE_PLACED, (*values, place))
    job_id = None if job_id is None else int(job_id)
    fault_point("outbox.written", *([] if job_id is None else [abs(job_id)]))
    return job_id


def ends_places(using: str) -> bool:
    """Whether :func:`insert` there ends a job's reservation too, in the same statement."""
    return connections[using].vendor == "postgresql"


def insert_many(using: str, pairs: Sequence[Pair]) -> dict[uuid.UUID, int]:
    """Write many jobs with their messages; return the ids of those that were not there yet.

    Keys are locked in sorted order, so two bulk calls can't deadlock each other; jobs are
    released in the order given.
    """
    fault_point("outbox.writing")
    written = _insert_many(using, pairs)
    fault_point("outbox.written", *written.values())
    return written


def reads_records(using: str) -> bool:
    """Whether the database there takes :func:`insert_records` and :func:`insert_due`."""
    return connections[using].vendor == "postgresql"


def insert_records(
    using: str, shared: Mapping[str, Any], records: Sequence[tuple[int, str]]
) -> dict[int, int]:
    """Write many jobs with their messages, each from its number and the inside of a JSON object.

    The fields are those of ``insert_many_1.sql``; ``shared`` has what is the same in all. Returns
    the ids of those that were not there yet, by their numbers. Keys are locked in the order given,
    which must be theirs; jobs are released by their numbers.
    """
    fault_point("outbox.writing")
    own = ", ".join([f'{{"position": {number}, {record}}}' for number, record in records])
    found = _written(connections[using], (json.dumps(shared), f"[{own}]"))
    fault_point("outbox.written", *found.values())
    return found


def _written(connection: BaseDatabaseWrapper, documents: tuple[str, str]) -> dict[int, int]:
    inserted = on_wire.called(connection, _INSERT_MANY, documents)
    # Django's cursor leaves json as text, the driver's reads it.
    found = json.loads(inserted) if isinstance(inserted, str) else inserted
    return {int(number): job_id for number, job_id in found.items()}


def _insert_many(using: str, pairs: Sequence[Pair]) -> dict[uuid.UUID, int]:
    order = sorted(range(len(pairs)), key=lambda n: (pairs[n][0].task, pairs[n][0].key or ""))
    connection = connections[using]
    if connection.vendor != "postgresql":
        return portable.insert_many(using, pairs, order)
    found = _written(connection, _documents(pairs, order))
    return {pairs[n][0].public_id: job_id for n, job_id in found.items()}


def _documents(pairs: Sequence[Pair], order: Sequence[int]) -> tuple[str, str]:
    """What all jobs share, and what each has of its own, as JSON."""
    rows = [_values(new) for new, _ in pairs]
    common = [len(set(column)) == 1 for column in zip(*rows, strict=True)]
    shared = dict(itertools.compress(zip(_FIELDS, rows[0], strict=True), common))
    differ = [not same for same in common]
    names = ("position", *itertools.compress(_FIELDS, differ))
    shared["form"] = form = pairs[0][1].form
    own = []
    for n in order:
        new, captured = pairs[n]
        record = dict(zip(names, (n, *itertools.compress(rows[n], differ)), strict=True))
        # An id of one job alone would count as common.
        record["public_id"] = str(new.public_id)
        own.append(record | _body(captured.body) | _envelope(captured, form))
    return json.dumps(shared, default=str), json.dumps(own, default=str)


def _envelope(captured: Captured, shared: str) -> dict[str, str]:
    # A form is a kilobyte, and mostly one for all; what is filled in is a hundred bytes.
    if captured.fills is None:
        return {"envelope": captured.envelope_text}
    if captured.form == shared:
        return captured.fills
    return {**captured.fills, "form": captured.form}


def _body(body: bytes) -> dict[str, str]:
    # Nearly every body is JSON of ASCII letters, and travels as it is.
    if body.isascii() and b"\0" not in body:
        return {"body": body.decode("ascii")}
    return {"body64": base64.b64encode(body).decode("ascii")}


def replace_message(job_id: int, captured: Captured, using: str) -> None:
    """Write a new message and make it the job's current one, in the caller's transaction."""
    check_size(captured)
    jobs = Job.objects.using(using).filter(pk=job_id)
    old = jobs.values_list("message_id", flat=True).first()
    jobs.update(message=new_message(using, captured))
    _forget_message(using, old)


def rerun(using: str, job_id: int, new: NewJob, captured: Captured) -> bool:
    """Run an ended, unsuccessful job again with this message; False when it can't (any more)."""
    ended = Job.objects.using(using).filter(pk=job_id, state__in=RERUNNABLE)
    with transaction.atomic(using=using):
        row = ended.select_for_update().values_list("message_id").first()
        if row is None:
            return False
        adding.rerun(using, job_id, new, new_message(using, captured).pk)
        _forget_message(using, *row)
    return True


def _forget_message(using: str, message_id: int | None) -> None:
    # Nothing else names it, and the purge goes by the messages that jobs name.
    if message_id is not None:
        OutboxMessage.objects.using(using).filter(pk=message_id).delete()


def take_back(using: str, job_ids: Iterable[int]) -> None:
    """Remove jobs that this very transaction inserted, with their messages."""
    jobs = Job.objects.using(using).filter(pk__in=list(job_ids))
    messages = list(jobs.values_list("message_id", flat=True))
    jobs.delete()
    OutboxMessage.objects.using(using).filter(pk__in=messages).delete()
