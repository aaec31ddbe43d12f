"""An exception out of a body becomes one of the closed set of outcomes.

Order: what the body asked for; the task's declared classes, the most specific one first (a tie
is permanent); the verdicts and what the database says of itself; time limits; everything else
fails, as in Celery.
"""

from __future__ import annotations

import inspect
from datetime import datetime
from typing import TYPE_CHECKING, Any

from billiard.exceptions import SoftTimeLimitExceeded, TimeLimitExceeded
from celery.exceptions import MaxRetriesExceededError, Reject
from celery.exceptions import Retry as CeleryRetry
from django.db import Error as DatabaseFault
from django.db import InterfaceError, InternalError, OperationalError

from celery_guard.enqueue.declaration import Guarded
from celery_guard.errors import (
    Cancelled,
    KeyBusy,
    Permanent,
    RetryAfter,
    Throttled,
    Transient,
    UnknownOutcome,
)
from celery_guard.jobs.states import Reason
from celery_guard.outbox.capture import instant
from celery_guard.relay.limits.answers import Verdict
from celery_guard.run.backoff import RETRY_AFTER_CAP, backoff, budget
from celery_guard.run.outcome import Dead, Fail, Outcome, Retry, Snooze, Stopped, Uncertain

if TYPE_CHECKING:
    from celery_guard.run.job import CurrentJob

# SQLSTATE classes and codes, and MariaDB's numbers, of faults that pass: connection lost, server
# going down or full, deadlock, serialisation failure, lock time-out.
_PASSING = ("08", "40", "57P01", "57P02", "57P03", "55P03", "53300")
# The server has ended a session whose transaction stood still, or lasted too long.
_STOOD_STILL = ("25P03", "25P04")
_PASSING_NUMBERS = frozenset(
    {1020, 1040, 1053, 1158, 1159, 1160, 1161, 1205, 1213, 1927, 2002, 2003, 2006, 2013, 2055, 4031}
)


def outcome_of(job: CurrentJob, error: BaseException, args: Any, kwargs: Any) -> Outcome:
    """How an attempt that ended by ``error`` is to be judged."""
    if isinstance(error, Cancelled):
        return Stopped(cause=error, tell=error)
    if job.asked is not None:
        return job.asked
    if (said := _said(job, error)) is not None:
        return said
    passing = _passes(job.task, error)
    if passing is None:
        return Fail(reason=_reason(job.task, error, args, kwargs), cause=error, tell=error)
    if passing:
        return _transient(job, error)
    return Fail(reason=Reason.PERMANENT, cause=error, tell=error)


def _said(job: CurrentJob, error: BaseException) -> Outcome | None:
    if error is job.exhausted or isinstance(error, MaxRetriesExceededError):
        return Dead(reason=Reason.BUDGET, cause=error, tell=error)
    if isinstance(error, Throttled):
        due = celery_retry(error, error.seconds)
        return Snooze(due=error.seconds, tell=due, reason=Reason(error.reason), cause=error)
    if isinstance(error, RetryAfter):
        return _snooze(error, error.seconds if error.until is None else error.until)
    if isinstance(error, UnknownOutcome):
        return Uncertain(cause=error, tell=celery_retry(error, 0.0))
    if isinstance(error, CeleryRetry):
        return _transient(job, error.exc or error, when=error.when)
    if isinstance(error, Reject):
        return _rejected(job, error, requeue=error.args[1])
    return None


def celery_retry(
    error: BaseException | None, when: Any, *, again: Any = None, eager: bool = False
) -> CeleryRetry:
    """What makes Celery store the state RETRY and publish nothing."""
    return CeleryRetry(exc=error, when=when, is_eager=eager, sig=again)  # type: ignore[arg-type]


def _snooze(error: BaseException, after: float | datetime) -> Snooze:
    # An instant is bounded where it is written down, by the database's clock.
    due = after if isinstance(after, datetime) else min(max(0.0, after), RETRY_AFTER_CAP)
    return Snooze(due=due, tell=celery_retry(error, due), cause=error)


def _rejected(job: CurrentJob, error: Reject, *, requeue: bool) -> Outcome:
    if requeue:
        # The broker's copy is only a hint: requeueing it would spin.
        return _snooze(error, backoff(job.task, job.failures))
    return Fail(reason=Reason.REJECTED, cause=error, tell=error)


def _transient(job: CurrentJob, error: BaseException, when: Any = None) -> Outcome:
    limit = budget(job.task)
    if limit is not None and job.failures + 1 >= limit:
        return Dead(reason=Reason.BUDGET, cause=error, tell=error)
    due = backoff(job.task, job.failures) if when is None else _instant(when)
    return Retry(due=due, tell=celery_retry(error, due), cause=error)


def _instant(when: Any) -> float | datetime:
    return instant(when) or 0.0 if isinstance(when, datetime) else max(0.0, float(when))


def _passes(task: Guarded, error: BaseException) -> bool | None:
    permanent = (*task.guard.permanent, *getattr(task, "dont_autoretry_for", ()), Permanent)
    transient = (*task.guard.transient, *getattr(task, "autoretry_for", ()), Transient, KeyBusy)
    for kind in type(error).__mro__:
        if kind in permanent:
            return False
        if kind in transient:
            return True
    return True if passing_fault(error) else None


def passing_fault(error: BaseException) -> bool:
    """Whether a database says that the same work may succeed another time."""
    if isinstance(error, InterfaceError):
        return True
    if isinstance(error, InternalError):
        return _code(error) in _STOOD_STILL
    if not isinstance(error, OperationalError):
        return False
    code = _code(error)
    if isinstance(code, int):
        return code in _PASSING_NUMBERS
    if isinstance(code, str):
        return code.startswith(_PASSING)
    # psycopg gives no code where the connection broke; SQLite never gives one.
    cause = type(error.__cause__).__module__
    return cause.startswith("psycopg") or "locked" in str(error)


def _code(error: DatabaseFault) -> object:
    # The number first: some drivers for MariaDB give both, and the state says less.
    if error.args and isinstance(error.args[0], int):
        return error.args[0]
    return getattr(error.__cause__, "sqlstate", None)


def blame(job: CurrentJob | None, error: BaseException) -> Verdict:
    """What ``error`` says of the dependency that was being called.

    Refusals of our own limits and the database's faults are not its doing; a permanent error is an
    answer; an unknown one says nothing.
    """
    if isinstance(error, Throttled | DatabaseFault | KeyBusy):
        return Verdict.UNCLEAR
    if isinstance(error, RetryAfter):
        return Verdict.THROTTLED
    if isinstance(error, CeleryRetry):
        return Verdict.UNCLEAR if error.exc is None else _blame_cause(job, error.exc)
    if isinstance(error, UnknownOutcome | SoftTimeLimitExceeded):
        return Verdict.FAILED
    if job is None:
        return Verdict.FAILED if isinstance(error, Transient) else Verdict.UNCLEAR
    passing = _passes(job.task, error)
    if passing is None:
        return Verdict.UNCLEAR
    return Verdict.FAILED if passing else Verdict.FINE


def _blame_cause(job: CurrentJob | None, cause: BaseException) -> Verdict:
    # Asking for a retry because of an error declares it transient, whatever it is.
    local = Throttled | DatabaseFault | KeyBusy
    told = blame(job, cause)
    return Verdict.FAILED if told == Verdict.UNCLEAR and not isinstance(cause, local) else told


def _reason(task: Guarded, error: BaseException, args: Any, kwargs: Any) -> Reason:
    if isinstance(error, SoftTimeLimitExceeded | TimeLimitExceeded) or is_time_limit(error):
        return Reason.TIMED_OUT
    if isinstance(error, TypeError) and not _fits(task, args, kwargs):
        return Reason.MISFIT
    return Reason.UNKNOWN_ERROR


def is_time_limit(error: BaseException) -> bool:
    """Whether ``error`` is gevent's hard limit, which comes as no ``Exception``."""
    return type(error).__module__.startswith("gevent") and type(error).__name__ == "Timeout"


def _fits(task: Guarded, args: Any, kwargs: Any) -> bool:
    try:
        inspect.signature(task.run).bind(*args, **kwargs)
    except TypeError:
        return False
    return True


def underlying(error: BaseException) -> BaseException:
    """The signal behind a database error, where one broke into a statement or a commit.

    Putting the connection in order fails then, and that failure is what arrives.
    """
    cause: BaseException | None = error if isinstance(error, DatabaseFault) else None
    while cause is not None:
        if isinstance(cause, SoftTimeLimitExceeded) or not isinstance(cause, Exception):
            return cause
        cause = cause.__cause__ or cause.__context__
    return error
