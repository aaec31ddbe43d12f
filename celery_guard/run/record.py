"""The one place where an attempt's outcome becomes a move of the ledger."""

from __future__ import annotations

import logging
from datetime import datetime
from typing import TYPE_CHECKING, Any

from django.db.models import DateTimeField, Value
from django.db.models.expressions import Combinable
from django.db.models.functions import Least
from kombu.utils import json

from celery_guard.conf import guard_settings
from celery_guard.events import emit
from celery_guard.jobs import cancelling, running
from celery_guard.jobs.clock import in_seconds
from celery_guard.jobs.states import Reason, State
from celery_guard.outbox.store import replace_message
from celery_guard.run.backoff import RETRY_AFTER_CAP
from celery_guard.run.failure import Failure, failure_of
from celery_guard.run.outcome import (
    Dead,
    Fail,
    Outcome,
    Retry,
    Snooze,
    Stopped,
    Succeeded,
    Uncertain,
)
from celery_guard.settle.moves import wait_for_answer

if TYPE_CHECKING:
    from celery_guard.run.job import CurrentJob


def record(job: CurrentJob, outcome: Outcome, *, commit: bool = False) -> bool:
    """Make the move that ``outcome`` asks for, in the open transaction.

    False when the job is no longer held by this attempt; nothing is written then. All but a
    plain success is remembered as an ``Attempt`` in the same transaction.

    :param commit: commit a success with it (see :func:`celery_guard.jobs.running.succeed`).
    """
    match outcome:
        case Succeeded():
            result = encoded(job, outcome.value)
            return running.succeed(job.hold, result=result, reason=outcome.reason, commit=commit)
        case Retry():
            reason, told = Reason(outcome.reason), "retry"
            moved = _put_back(job, reason, outcome.due, failures=1)
            if moved and outcome.message is not None:
                replace_message(job.id, outcome.message, job.using)
        case Snooze():
            reason, told = Reason(outcome.reason), "snooze"
            moved = _put_back(job, reason, _bounded(outcome.due))
        case Uncertain():
            reason, told = Reason.UNCERTAIN, "uncertain"
            moved = wait_for_answer(job.hold)
        case Fail() | Dead() | Stopped():
            told = _ENDS[type(outcome)]
            reason, moved = Reason(outcome.reason), _end(job, told, outcome)
    if moved and reason not in _UNTRIED:
        _remember(job, told, reason, outcome.cause)
    return moved


# A limit was reached: nothing has been tried, so there is nothing to remember.
_UNTRIED = (Reason.RATE, Reason.BREAKER)


def _bounded(due: float | datetime) -> float | Combinable:
    if not isinstance(due, datetime):
        return due
    return Least(Value(due, output_field=DateTimeField()), in_seconds(RETRY_AFTER_CAP))


def _put_back(
    job: CurrentJob, reason: str, due: float | datetime | Combinable, failures: int = 0
) -> bool:
    moved = running.put_back(job.hold, reason=reason, due=due, failures=failures)
    if moved:
        # Whoever asked the job to stop does not mean to see it run again.
        cancelling.honour(job.using, job.id)
    return moved


_ENDS: dict[type, State] = {Fail: State.FAILED, Dead: State.DEAD, Stopped: State.CANCELLED}


def _end(job: CurrentJob, state: State, outcome: Fail | Dead | Stopped) -> bool:
    error = failure_of(outcome.cause).stored(state, outcome.reason)
    return running.end(job.hold, state=state, reason=outcome.reason, error=error)


def _remember(job: CurrentJob, told: str, reason: str, cause: BaseException | None) -> None:
    failure = failure_of(cause) if cause is not None else _NOTHING
    history = running.History(
        number=job.starts,
        outcome=told,
        reason=reason,
        error=failure.text if cause is not None else "",
        fingerprint=failure.fingerprint,
        worker=str(job.request.hostname or "")[:255],
        started_at=job.claim.started_at,
    )
    running.remember(job.hold, history)


_NOTHING = Failure(type="", message="", fingerprint="")


def encoded(job: CurrentJob, value: Any) -> str | None:
    """The return value as stored text; None for None, and for what can't be stored.

    Work that is done is never undone for the sake of its return value.
    """
    if value is None:
        return None
    try:
        text = str(json.dumps(value))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        emit("run.result_not_stored", logging.WARNING, **_facts(job), why=str(error))
        return None
    if len(text) > guard_settings().outbox.payload_limit:
        emit("run.result_not_stored", logging.WARNING, **_facts(job), why="too large")
        return None
    return text


def _facts(job: CurrentJob) -> dict[str, Any]:
    return {"job": job.id, "task": job.task.name}
