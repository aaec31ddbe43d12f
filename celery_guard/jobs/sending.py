"""The sender's moves: take back, put off, park; and what a sender holds in its hands.

``sent_at`` is the sender's claim: set before the broker is spoken to, and taken back only
where it still has the value this sender wrote, so a late report of an old sender meets nothing.
"""

from __future__ import annotations

import dataclasses
import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from django.db import connections, transaction
from django.db.models import F, QuerySet

from celery_guard.jobs import following, on_wire
from celery_guard.jobs.clock import DatabaseNow, in_seconds
from celery_guard.jobs.models import Job
from celery_guard.jobs.states import Reason, State


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Lead:
    """A relay's right to release the jobs of a lane: good only while its row says the same."""

    lane: str
    owner: uuid.UUID
    term: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Sending:
    """One job marked as sent, with the message that now has to reach the broker.

    ``sent_at`` is None for a job that expired instead. ``envelope`` is None when the message
    is gone. ``dependency`` is told by a release only, ``tenant`` by one of a lane that tenants share.
    """

    id: int
    public_id: uuid.UUID
    task: str
    plain: bool
    awaited: bool
    state: str
    sent_at: datetime | None
    sends: int
    message_id: int | None
    body: bytes
    envelope: str | None
    dependency: str = ""
    tenant: str = ""


def unsend(using: str, sendings: Iterable[Sending]) -> int:
    """Take back what did not reach the broker: nothing used up, due as before."""
    return sum(
        _take_back(using, mates, {"sends": F("sends") - 1}) for mates in by_time(sendings).values()
    )


def put_off(using: str, sending: Sending, seconds: float) -> int:
    """Take back one message that the broker refused; it is due again in ``seconds``."""
    changes = {"due_at": in_seconds(seconds), "reason": Reason.OUTAGE}
    return _take_back(using, [sending], changes)


def park(using: str, sending: Sending, message: str) -> int:
    """End a job whose message no broker can take: ``failed``, unsendable, kept for replay."""
    error = {
        "type": "Unsendable",
        "message": message.replace("\x00", " ")[:2000],
        "state": State.FAILED,
        "reason": Reason.UNSENDABLE,
    }
    changes = {
        "state": State.FAILED,
        "reason": Reason.UNSENDABLE,
        "due_at": None,
        "finished_at": DatabaseNow(),
        "error": json.dumps(error),
    }
    parked = _take_back(using, [sending], changes)
    if parked:
        following.free(using, sending.id)
    return parked


def _take_back(using: str, mates: Sequence[Sending], changes: Mapping[str, object]) -> int:
    mine = marked(using, mates).filter(state=State.WAITING)
    skips = connections[using].features.has_select_for_update_skip_locked
    with transaction.atomic(using=using):
        # In id order, like every list of jobs; a row that somebody holds is changing already,
        # and if it stays as it is, the sweep finds it.
        rows = mine.order_by("pk").select_for_update(skip_locked=skips)
        held = list(rows.values_list("pk", flat=True))
        return mine.filter(pk__in=held).update(sent_at=None, **changes) if held else 0


def marked(using: str, mates: Sequence[Sending]) -> QuerySet[Job]:
    """The rows of ``mates``, marked at one time, as far as they still are theirs and so marked."""
    return Job.objects.using(using).filter(
        pk__in=[sending.id for sending in mates],
        public_id__in=[sending.public_id for sending in mates],
        sent_at=mates[0].sent_at,
        sent_at__isnull=False,
    )


def by_time(sendings: Iterable[Sending]) -> dict[datetime, list[Sending]]:
    """The sendings by the time they were marked as sent."""
    groups: dict[datetime, list[Sending]] = {}
    for sending in sendings:
        if sending.sent_at is not None:
            groups.setdefault(sending.sent_at, []).append(sending)
    return groups


_FIRST = """SELECT * FROM (
    SELECT lane, due_at FROM celery_guard_job
    WHERE lane = %s AND sent_at IS NULL AND due_at IS NOT NULL
    ORDER BY sent_at, due_at LIMIT 1
) AS first"""
# A function, because planning it took longer than running it: see next_due_1.sql.
_NEXT_DUE = on_wire.function_of_rows("celery_guard_next_due_1", "text")
_SECONDS = {
    "mysql": "SELECT lane, timestampdiff(MICROSECOND, UTC_TIMESTAMP(6), due_at) / 1e6 FROM (",
    "sqlite": "SELECT lane, (julianday(due_at) - julianday('now')) * 86400.0 FROM (",
}


def next_due(using: str, lanes: Sequence[str]) -> dict[str, float]:
    """Seconds until the first unsent job of each lane is due (0 or less: now); none, no entry."""
    if not lanes:
        return {}
    connection = connections[using]
    if connection.vendor == "postgresql":
        found = on_wire.rows_of(connection, _NEXT_DUE, [json.dumps(list(lanes))])
        return {lane: due_in / 1e6 for lane, due_in in found}
    union = " UNION ALL ".join([_FIRST] * len(lanes))
    with connection.cursor() as cursor:
        cursor.execute(_SECONDS[connection.vendor] + union + ") AS firsts", list(lanes))
        return {lane: float(seconds) for lane, seconds in cursor.fetchall()}
