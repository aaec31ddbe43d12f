"""The worker's moves: claim, succeed, put back, end.

Every move after the claim is fenced: it happens only while the row is running under the same
fence *and* owner, and says whether it did. Nobody else's write can be undone by it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import uuid
from collections.abc import Callable, Sequence
from datetime import datetime
from importlib import resources

from django.db import IntegrityError, connections, transaction
from django.db.models import F, Q, QuerySet, Value
from django.db.models.expressions import Combinable
from django.db.models.functions import Coalesce

from celery_guard.conf.modes import Mode
from celery_guard.jobs import direct, following, unfolding
from celery_guard.jobs.clock import DatabaseNow, in_seconds
from celery_guard.jobs.models import Attempt, Job
from celery_guard.jobs.named import NamedJob
from celery_guard.jobs.states import Reason, State


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """The right to settle a job: good only while its row names the same fence and owner.

    ``coalesced`` says that its end has followers to free.
    """

    job_id: int
    fence: int
    owner: uuid.UUID
    using: str
    coalesced: bool = False


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


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What an attempt that was no plain success leaves behind."""

    number: int
    outcome: str
    reason: str
    error: str = ""
    fingerprint: str = ""
    worker: str = ""
    started_at: datetime | None = None


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


def claim(
    using: str, job: NamedJob, *, owner: uuid.UUID, lease: float, lazily: bool = False
) -> Claim | None:
    """Take a job whose message has arrived: waiting, sent and not expired, else None.

    On PostgreSQL a job that a hold covers is not taken either (:func:`sees_holds`).

    :param lease: seconds the claim lasts without a heartbeat.
    :param lazily: don't wait for the disk, where PostgreSQL can. A crash of its server may then
        undo the claim, and undoes with it whatever the body had not committed.
    """
    if sees_holds(using):
        lazily = lazily and _is_alone(using)
        given = (owner, lease, job.id, job.public_id, lazily)
        return _claim(using, job, owner, lambda: _returned(using, "claim", given))
    sent = Q(sent_at__isnull=False)
    return _claim(using, job, owner, lambda: _claim_portably(using, job, sent, owner, lease))


def sees_holds(using: str) -> bool:
    """Whether a claim on ``using`` by itself leaves a held job alone: PostgreSQL's does."""
    return connections[using].vendor == "postgresql"


def _is_alone(using: str) -> bool:
    # In somebody's transaction it would be their commit that doesn't wait.
    connection = connections[using]
    return not connection.in_atomic_block and connection.get_autocommit()


def claim_directly(
    using: str, job: NamedJob, *, owner: uuid.UUID, lease: float, early: bool = False
) -> Claim | None:
    """Take a job without a message of its own: sent or due (``early``: or not yet due)."""
    if connections[using].vendor == "postgresql":
        given = (owner, lease, job.id, job.public_id, early)
        return _claim(using, job, owner, lambda: _returned(using, "claim_directly", given))
    due = Q() if early else Q(sent_at__isnull=False) | Q(due_at__lte=DatabaseNow())
    return _claim(using, job, owner, lambda: _claim_portably(using, job, due, owner, lease))


def _claim(
    using: str,
    job: NamedJob,
    owner: uuid.UUID,
    take: Callable[[], Sequence[object] | None],
) -> Claim | None:
    inside = connections[using].in_atomic_block
    try:
        with transaction.atomic(using=using) if inside else contextlib.nullcontext():
            row = take()
    except IntegrityError:
        # Another job of its coalesce key runs: it waits its turn.
        if not following.step_back(using, job):
            raise
        return None
    if row is None:
        return None
    found = dict(zip(_CLAIMED, row, strict=True))
    hold = Hold(
        job_id=job.id,
        fence=found.pop("fence"),  # type: ignore[arg-type]
        owner=owner,
        using=using,
        coalesced=found["coalesce_key"] is not None,
    )
    return Claim(hold=hold, **found)  # type: ignore[arg-type]


def _claim_portably(
    using: str, named: NamedJob, ready: Q, owner: uuid.UUID, lease: float
) -> Sequence[object] | None:
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
        return job.values_list(*_CLAIMED).get() if claimed else None


def lock(hold: Hold) -> bool:
    """Lock the held row to the end of the open transaction; False when it is no longer held."""
    return bool(_held(hold).select_for_update().values_list("pk"))


def succeed(hold: Hold, *, result: str | None = None, reason: str = Reason.DONE) -> bool:
    """End the held job in the open (business) transaction.

    :param result: the return value as kombu JSON, None for none.
    """
    if connections[hold.using].vendor == "postgresql":
        given = (reason, result, hold.job_id, hold.fence, hold.owner)
        return _freed(hold, _executed(hold.using, "succeed", given) == 1)
    return _settle(hold, state=State.SUCCEEDED, reason=reason, result=result, error=None)


def keep_result(hold: Hold, result: str) -> bool:
    """Store the return value of a body that had finished its job before it returned."""
    job = Job.objects.using(hold.using).filter(pk=hold.job_id, fence=hold.fence)
    return job.filter(state=State.SUCCEEDED, result=None).update(result=result) == 1


def give_up_id(hold: Hold) -> bool:
    """Free the held job's public id for the job that replaces it under the same task id."""
    return _held(hold).update(public_id=uuid.uuid4()) == 1


def put_back(
    hold: Hold,
    *,
    reason: str,
    due: float | datetime | Combinable = 0.0,
    failures: int = 0,
    lost: int = 0,
) -> bool:
    """Move the held job back to waiting.

    :param due: seconds from now by the database's clock, or an instant.
    :param failures: how much of the budget this uses up; ``lost``: the same of lost attempts.
    """
    changed = _held(hold).update(
        state=State.WAITING,
        reason=reason,
        sent_at=None,
        due_at=in_seconds(due) if isinstance(due, int | float) else due,
        owner=None,
        running_key=None,
        lease_until=None,
        failures=F("failures") + Value(failures),
        lost=F("lost") + Value(lost),
    )
    return changed == 1


def end(hold: Hold, *, state: str, reason: str, error: str) -> bool:
    """End the held job without success; its message is kept for replay.

    :param error: JSON text with ``type``, ``message``, ``state``, ``reason``.
    """
    if not (hold.coalesced and state == State.CANCELLED):
        return _settle(hold, state=state, reason=reason, error=error)
    with transaction.atomic(using=hold.using):
        gone = _held(hold).defer("result", "error").first()
        ended = _settle(hold, state=state, reason=reason, error=error)
        if ended and gone is not None:
            unfolding.step_in(hold.using, gone)
    return ended


def _settle(hold: Hold, **changes: object) -> bool:
    ended = _held(hold).update(
        sent_at=None,
        due_at=None,
        owner=None,
        running_key=None,
        lease_until=None,
        finished_at=DatabaseNow(),
        **changes,
    )
    return _freed(hold, ended == 1)


def _freed(hold: Hold, ended: bool) -> bool:
    if ended and hold.coalesced:
        following.free(hold.using, hold.job_id)
    return ended


def _held(hold: Hold) -> QuerySet[Job]:
    jobs = Job.objects.using(hold.using)
    return jobs.filter(pk=hold.job_id, state=State.RUNNING, fence=hold.fence, owner=hold.owner)


def remember(hold: Hold, history: History) -> None:
    """Append an attempt to the job's history, in the transaction of its move."""
    Attempt.objects.using(hold.using).create(
        job_id=hold.job_id, ended_at=DatabaseNow(), **dataclasses.asdict(history)
    )


@functools.cache
def _sql(name: str) -> str:
    text = resources.files("celery_guard.jobs").joinpath("sql", f"{name}.sql").read_text("utf-8")
    return "\n".join(line for line in text.splitlines() if not line.startswith("--"))


def _returned(using: str, statement: str, given: Sequence[object]) -> Sequence[object] | None:
    return direct.returned(connections[using], _sql(statement), given)


def _executed(using: str, statement: str, given: Sequence[object]) -> int:
    return direct.changed(connections[using], _sql(statement), given)
