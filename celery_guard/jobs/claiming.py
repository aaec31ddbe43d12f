"""The claim: a job that waits and was sent becomes one process' own, for a time."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import uuid
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from importlib import resources
from typing import Any

from django.db import IntegrityError, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import F, Q, Value
from django.db.models.functions import Coalesce

from celery_guard.conf.modes import Mode
from celery_guard.jobs import direct, following, on_wire
from celery_guard.jobs.clock import DatabaseNow, in_seconds
from celery_guard.jobs.named import NamedJob
from celery_guard.jobs.running import Hold
from celery_guard.jobs.standing import Standing
from celery_guard.jobs.states import State


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A job that was waiting and is now ours, as it was after the claim.

    ``starts`` counts this one; ``survivor_id`` names the job that an echo repeats.
    """

    hold: Hold
    public_id: uuid.UUID
    key: str | None
    lane: str
    starts: int
    failures: int
    lost: int
    awaited: bool
    survivor_id: int | None
    started_at: datetime
    coalesce_key: str | None = None
    expires_at: datetime | None = None
    mode: str = Mode.ON
    first_due_at: datetime | None = None
    tenant: str = ""

    @property
    def waited(self) -> float | None:
        """Seconds from the first due time to this start; None where it is not the first start."""
        if self.starts != 1 or self.first_due_at is None:
            return None
        return max(0.0, (self.started_at - self.first_due_at).total_seconds())

    @property
    def time_left(self) -> float:
        """Seconds from the claim after which nobody would start it any more."""
        if self.expires_at is None:
            return math.inf
        return max(0.0, (self.expires_at - self.started_at).total_seconds())


_CLAIMED = (
    "fence",
    "public_id",
    "key",
    "lane",
    "starts",
    "failures",
    "lost",
    "awaited",
    "survivor_id",
    "started_at",
    "coalesce_key",
    "expires_at",
    "mode",
    "first_due_at",
    "tenant",
)
# A function, because planning it took longer than running it: see claim_3.sql.
_CLAIM = on_wire.function("celery_guard_claim_3", 5)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Row = Sequence[Any]


def claim(
    using: str, job: NamedJob, *, owner: uuid.UUID, lease: float, lazily: bool = False
) -> Claim | None:
    """Take a job whose message has arrived: waiting, sent and not expired, else None.

    On PostgreSQL a job that a hold covers is not taken either (:func:`sees_holds`).

    :param lease: seconds the claim lasts without a heartbeat.
    :param lazily: don't wait for the disk, where PostgreSQL can. A crash of its server may then
        undo the claim, and undoes with it whatever the body had not committed.
    """
    found = claim_or_look(using, job, owner=owner, lease=lease, lazily=lazily)
    return found if isinstance(found, Claim) else None


def claim_or_look(
    using: str, job: NamedJob, *, owner: uuid.UUID, lease: float, lazily: bool = False
) -> Claim | Standing | None:
    """:func:`claim`, or where that may be had without asking again, how the job stands instead."""
    connection = connections[using]
    if connection.vendor == "postgresql":
        # In somebody's transaction it would be their commit that doesn't wait.
        lazily = lazily and not connection.in_atomic_block and connection.get_autocommit()
        given = (job.id, job.public_id, owner, lease, lazily)
        return _taken(using, job, owner, lambda: _called(connection, _CLAIM, given))
    sent = Q(sent_at__isnull=False)
    return _taken(using, job, owner, lambda: _claim_portably(using, job, sent, owner, lease))


def sees_holds(using: str) -> bool:
    """Whether a claim on ``using`` by itself leaves a held job alone: PostgreSQL's does."""
    return connections[using].vendor == "postgresql"


def claim_directly(
    using: str, job: NamedJob, *, owner: uuid.UUID, lease: float, early: bool = False
) -> Claim | None:
    """Take a job without a message of its own: sent or due (``early``: or not yet due)."""

    def take() -> Row | None:
        if (connection := connections[using]).vendor == "postgresql":
            given = (owner, lease, job.id, job.public_id, early)
            row = direct.returned(connection, _sql("claim_directly"), given)
            return None if row is None else (True, *row)
        due = Q() if early else Q(sent_at__isnull=False) | Q(due_at__lte=DatabaseNow())
        return _claim_portably(using, job, due, owner, lease)

    found = _taken(using, job, owner, take)
    return found if isinstance(found, Claim) else None


def _taken(
    using: str, job: NamedJob, owner: uuid.UUID, take: Callable[[], Row | None]
) -> Claim | Standing | None:
    try:
        if connections[using].in_atomic_block:
            with transaction.atomic(using=using):
                row = take()
        else:
            row = take()
    except IntegrityError:
        # Another job of its coalesce key runs: it waits its turn.
        if not following.step_back(using, job):
            raise
        return None
    if row is None:
        return None
    return _claim(using, job, owner, row) if row[0] else _standing(row)


def _claim(using: str, job: NamedJob, owner: uuid.UUID, row: Row) -> Claim:
    hold = Hold(
        job_id=job.id, fence=row[1], owner=owner, using=using, coalesced=row[11] is not None
    )
    return Claim(
        hold=hold,
        public_id=row[2],
        key=row[3],
        lane=row[4],
        starts=row[5],
        failures=row[6],
        lost=row[7],
        awaited=row[8],
        survivor_id=row[9],
        started_at=row[10],
        coalesce_key=row[11],
        expires_at=row[12],
        mode=row[13],
        first_due_at=row[14],
        tenant=row[15],
    )


def _standing(row: Row) -> Standing:
    return Standing(
        fence=row[1],
        tenant=row[2],
        state=row[3],
        reason=row[4],
        sent=row[5],
        expired=row[6],
        owner=row[7] and uuid.UUID(row[7]),
        result=row[8],
        error=row[9],
        answered=row[10],
    )


def _read(told: str | None) -> Row | None:
    if told is None:
        return None
    row: list[Any] = json.loads(told)
    if row[0]:
        row[2] = uuid.UUID(row[2])
        for place in (10, 12, 14):
            if (moment := row[place]) is not None:
                row[place] = _EPOCH + timedelta(microseconds=moment)
    return row


def _claim_portably(
    using: str, named: NamedJob, ready: Q, owner: uuid.UUID, lease: float
) -> Row | None:
    job = named.row(using)
    fresh = Q(expires_at=None) | Q(expires_at__gt=DatabaseNow())
    with transaction.atomic(using=using):
        claimed = job.filter(ready, fresh, state=State.WAITING).update(
            state=State.RUNNING,
            reason="",
            fence=F("fence") + Value(1),
            starts=F("starts") + Value(1),
            sent_at=Coalesce("sent_at", DatabaseNow()),
            owner=owner,
            running_key=following.SLOT,
            started_at=DatabaseNow(),
            lease_until=in_seconds(lease),
        )
        # The row is locked by the UPDATE, so this reads what it wrote.
        return (True, *job.values_list(*_CLAIMED).get()) if claimed else None


@functools.cache
def _sql(name: str) -> str:
    text = resources.files("celery_guard.jobs").joinpath("sql", f"{name}.sql").read_text("utf-8")
    return "\n".join(line for line in text.splitlines() if not line.startswith("--"))


def _called(connection: BaseDatabaseWrapper, asked: on_wire.Function, given: Row) -> Row | None:
    return _read(on_wire.called(connection, asked, given))
