"""The worker's moves after the claim: succeed, put back, end.

Every one is fenced: it happens only while the row is running under the same
fence *and* owner, and says whether it did. Nobody else's write can be undone by it.
"""

from __future__ import annotations

import dataclasses
import functools
import uuid
from datetime import datetime
from importlib import resources

from django.db import connections, transaction
from django.db.models import F, QuerySet, Value
from django.db.models.expressions import Combinable

from celery_guard.jobs import begin_and_commit, direct, following, unfolding
from celery_guard.jobs.clock import DatabaseNow, in_seconds
from celery_guard.jobs.models import Attempt, Job
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
class History:
    """What an attempt that was no plain success leaves behind."""

    number: int
    outcome: str
    reason: str
    error: str = ""
    fingerprint: str = ""
    worker: str = ""
    started_at: datetime | None = None


# A function: it is planned once a session, and it can keep the COMMIT behind it from happening.
_SUCCEED = b"celery_guard_succeed_1"
# The error with which it does so.
_NOT_HELD = "CGL01"


def lock(hold: Hold) -> bool:
    """Lock the held row to the end of the open transaction; False when it is no longer held."""
    return bool(_held(hold).select_for_update().values_list("pk"))


def commits_at_once(hold: Hold) -> bool:
    """Whether the held job's success and the commit of the open transaction can be one message."""
    return not hold.coalesced and begin_and_commit.commits_at_once(connections[hold.using])


def succeed(
    hold: Hold, *, result: str | None = None, reason: str = Reason.DONE, commit: bool = False
) -> bool:
    """End the held job in the open (business) transaction.

    :param result: the return value as kombu JSON, None for none.
    :param commit: and commit it (where :func:`commits_at_once`), unless the job is no longer held.
    """
    connection = connections[hold.using]
    given = (reason, result, hold.job_id, hold.fence, hold.owner)
    if commit:
        return begin_and_commit.committed_with(connection, _SUCCEED, given, unless=_NOT_HELD)
    if connection.vendor == "postgresql":
        return _freed(hold, direct.changed(connection, _sql("succeed"), given) == 1)
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
