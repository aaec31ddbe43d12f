"""How exceptions are judged, without running anything."""

import math
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from billiard.exceptions import SoftTimeLimitExceeded
from celery.exceptions import MaxRetriesExceededError, Reject
from celery.exceptions import Retry as CeleryRetry
from django.core.exceptions import ObjectDoesNotExist, ValidationError
from django.db import IntegrityError, InterfaceError, OperationalError

from celery_guard import UNKEYED, GuardedTask, Permanent, RetryAfter, Transient
from celery_guard.errors import KeyBusy
from celery_guard.run.classify import outcome_of, underlying
from celery_guard.run.outcome import Dead, Fail, Outcome, Retry, Snooze


class Parent(Exception):
    """A declared class."""


class Child(Parent):
    """A more specific one."""


def _judge(error: BaseException, *, failures: int = 0, call: Any = (), **options: Any) -> Outcome:
    body = {"name": "tests.none", "run": lambda self, a=1: None, "key": UNKEYED}
    task = type("made", (GuardedTask,), {**body, **options})()
    job: Any = SimpleNamespace(task=task, failures=failures, asked=None, exhausted=None)
    return outcome_of(job, error, call, {})


def _database_error(state: str) -> OperationalError:
    error = OperationalError("x")
    error.__cause__ = type("E", (Exception,), {"sqlstate": state})()
    return error


@pytest.mark.parametrize(
    "error",
    [ValidationError("x"), ObjectDoesNotExist(), TypeError("x"), IntegrityError(), KeyError("x")],
)
def test_an_unknown_exception_fails_as_in_celery(error: Exception) -> None:
    """Nothing is tried again that nobody declared."""
    outcome = _judge(error)
    assert isinstance(outcome, Fail)
    assert (outcome.reason, outcome.tell) == ("unknown_error", error)


@pytest.mark.parametrize(
    "error",
    [
        Transient(),
        KeyBusy(),
        InterfaceError("connection already closed"),
        *map(_database_error, ("40001", "40P01", "55P03", "57P01", "08006", "53300")),
        OperationalError(1213, "Deadlock found"),
        OperationalError(1205, "Lock wait timeout exceeded"),
        OperationalError(2013, "Lost connection"),
        OperationalError("database is locked"),
    ],
    ids=str,
)
def test_what_the_database_calls_passing_is_transient(error: Exception) -> None:
    """Deadlock, serialisation failure, lost connection, lock time-out, full server."""
    assert isinstance(_judge(error), Retry)


def test_other_database_errors_are_not_transient() -> None:
    """A cancelled statement or a missing table won't be better next time."""
    assert isinstance(_judge(_database_error("57014")), Fail)
    assert isinstance(_judge(OperationalError("no such table: x")), Fail)


@pytest.mark.parametrize(
    ("transient", "permanent", "error", "kind"),
    [
        ((ConnectionError,), (), ConnectionResetError(), Retry),
        ((Parent,), (Child,), Child(), Fail),
        ((Child,), (Parent,), Child(), Retry),
        ((Parent,), (Child,), Parent(), Retry),
        ((Child,), (Child,), Child(), Fail),
        ((Exception,), (), Permanent(), Fail),
        ((Exception,), (), SoftTimeLimitExceeded(), Retry),
        ((), (OperationalError,), OperationalError(1213, "x"), Fail),
    ],
)
def test_the_most_specific_declared_class_wins(
    transient: Any, permanent: Any, error: Exception, kind: type
) -> None:
    """Along the exception's own bases; a tie is permanent; a declared class beats the built-in rule."""
    assert isinstance(_judge(error, transient=transient, permanent=permanent), kind)


def test_celerys_lists_count_as_declared() -> None:
    """autoretry_for and dont_autoretry_for."""
    lists = {"autoretry_for": (Parent,), "dont_autoretry_for": (Child,)}
    assert isinstance(_judge(Parent(), **lists), Retry)
    assert isinstance(_judge(Child(), **lists), Fail)


def test_a_chained_transient_cause_does_not_soften_a_permanent_error() -> None:
    """Only what was raised counts."""
    error = Permanent()
    error.__cause__ = ConnectionError()
    assert isinstance(_judge(error, transient=(ConnectionError,)), Fail)


def test_the_budget_ends_in_dead() -> None:
    """The failure that uses up the budget is the job's death; snoozes never are."""
    assert isinstance(_judge(Transient(), failures=8), Retry)
    assert isinstance(_judge(Transient(), failures=9), Dead)
    assert isinstance(_judge(MaxRetriesExceededError()), Dead)
    assert isinstance(_judge(RetryAfter(1), failures=99), Snooze)


def test_retry_after_is_capped() -> None:
    """A provider can't park a job for a year, nor for a negative time."""
    assert _judge(RetryAfter(10**9)).due == 3600
    assert _judge(RetryAfter(-5)).due == 0


def test_time_limits_fail_unless_declared() -> None:
    """A body that was too slow is not run again by itself."""
    outcome = _judge(SoftTimeLimitExceeded())
    assert isinstance(outcome, Fail)
    assert outcome.reason == "timed_out"


def test_arguments_that_do_not_fit_are_a_misfit() -> None:
    """Told by binding them, so a TypeError inside the body is only an unknown error."""
    assert _judge(TypeError("x"), call=(1, 2, 3)).reason == "misfit"
    assert _judge(TypeError("x"), call=(1,)).reason == "unknown_error"


def test_reject_and_bare_retry() -> None:
    """Reject fails, or is a snooze when it wants to be requeued; a bare Retry is a transient failure."""
    assert _judge(Reject("x", requeue=False)).reason == "rejected"
    assert isinstance(_judge(Reject("x", requeue=True)), Snooze)
    assert _judge(CeleryRetry(when=5)).due == 5


@pytest.mark.parametrize("signal", [SoftTimeLimitExceeded(), SystemExit(1), KeyboardInterrupt()])
def test_a_signal_behind_a_database_error_is_found(signal: BaseException) -> None:
    """Closing a connection in the middle of a statement fails and hides what interrupted it."""
    error = OperationalError("x")
    error.__cause__ = RuntimeError("driver")
    error.__cause__.__context__ = signal
    assert underlying(error) is signal
    assert underlying(ValueError("x")).args == ("x",)


@pytest.mark.parametrize(
    ("after", "seconds"), [(3, 3.0), (0.5, 0.5), ("120", 120.0), ("soon", 1.0), ("-5", 1.0)]
)
def test_retry_after_takes_what_a_provider_sends(after: float | str, seconds: float) -> None:
    """Seconds as a number or as text; text that says nothing is a second."""
    error = RetryAfter(after)
    assert (error.seconds, error.until) == (seconds, None)
    assert type(error)(*error.args).seconds == seconds


def test_a_datetime_without_a_zone_is_refused() -> None:
    """At once and by name, not as an arithmetic error from within."""
    with pytest.raises(ValueError, match="with a time zone"):
        RetryAfter(datetime(2050, 1, 1))  # noqa: DTZ001 - that is the fault


@pytest.mark.parametrize(
    "text",
    [
        "Sun, 06 Nov 1994 08:49:37 GMT",
        "Sunday, 06-Nov-94 08:49:37 GMT",
        "Sun Nov  6 08:49:37 1994",
    ],
)
def test_retry_after_takes_every_date_of_http(text: str) -> None:
    """All three forms name the same instant; one that is past means now."""
    error = RetryAfter(text)
    assert error.until == datetime(1994, 11, 6, 8, 49, 37, tzinfo=UTC)
    assert error.seconds == 0


@pytest.mark.parametrize("seconds", [math.nan, math.inf, -math.inf])
def test_a_later_that_is_no_number_is_refused(seconds: float) -> None:
    """Where it is made, with the line that made it; not when its end is written down."""
    with pytest.raises(ValueError, match="finite"):
        RetryAfter(seconds)
    assert RetryAfter(-0.2).seconds == 0
