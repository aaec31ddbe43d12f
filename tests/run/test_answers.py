"""What copies, echoes and late messages are told."""

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from celery_guard import UNKEYED, JobError, events, guarded_task
from celery_guard.errors import Cancelled, JobCancelled
from celery_guard.jobs import cancelling
from celery_guard.jobs.named import JOB_HEADER, NamedJob
from celery_guard.jobs.states import Reason
from celery_guard.models import Job
from celery_guard.run import strangers
from tests.enqueue.tasks import elsewhere
from tests.project.shop import tasks
from tests.project.shop.witness import traces
from tests.run.delivery import deliver, job_of, message_of, receive, send, state_of
from tests.run.marks import on_database

pytestmark = on_database


def test_a_failed_job_answers_with_its_stored_error(scratch: Path) -> None:
    """As long as nobody has been told; afterwards a copy changes nothing any more."""
    job = job_of(tasks.verdict.delay("a", "bug"))
    message = send(job)
    receive(message)
    job.refresh_from_db()
    assert job.answered_at is not None
    assert state_of(receive(message)) == "IGNORED"
    Job.objects.update(answered_at=None)
    answer = receive(message)
    error = answer.info.retval
    assert isinstance(error, JobError)
    assert (error.state, error.reason) == ("failed", "unknown_error")
    assert "ZeroDivisionError" in str(error)
    assert traces("a") == [""]


def test_a_sent_job_that_was_cancelled_is_told_without_an_alarm(
    scratch: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever waits gets the typed end; the worker's log has one line, and no error."""
    job = job_of(tasks.mark.delay("a"))
    message = send(job)
    assert cancelling.ask("default", job.public_id) == "cancelled"
    caplog.set_level(logging.INFO, "celery.app.trace")
    answer = receive(message)
    assert state_of(answer) == "FAILURE"
    error = answer.info.retval
    assert isinstance(error, JobCancelled)
    assert (error.state, error.reason) == ("cancelled", "cancel")
    job.refresh_from_db()
    assert job.answered_at is not None
    (line,) = [record for record in caplog.records if record.name == "celery.app.trace"]
    assert (line.levelname, line.exc_info) == ("INFO", None)


def test_a_task_adds_to_what_it_throws() -> None:
    """A task's own expected errors stand beside the guard's."""

    @guarded_task(key=UNKEYED, throws=(LookupError,))
    def expects() -> None: ...

    assert set(expects.throws) >= {LookupError, Cancelled, JobCancelled}


@pytest.mark.bar
def test_an_awaited_job_is_answered_once_it_is_told(scratch: Path) -> None:
    """answered_at is set after Celery has stored the result, never before."""
    job = job_of(tasks.mark.delay("a", "v"))
    assert job.awaited is True
    deliver(job)
    job.refresh_from_db()
    assert job.answered_at is not None
    assert job.finished_at is not None
    assert job.answered_at > job.finished_at


def test_a_job_that_nobody_waits_for_costs_no_answer(scratch: Path) -> None:
    """With the result ignored nothing is owed after the commit."""
    job = job_of(tasks.mark.apply_async(("a",), ignore_result=True))
    deliver(job)
    job.refresh_from_db()
    assert (job.awaited, job.answered_at) == (False, None)


def test_a_duplicate_says_whose_it_is(scratch: Path, heard: list[events.Event]) -> None:
    """The event names the job and its state, apart from a success."""
    message = send(job_of(tasks.mark.delay("a")))
    receive(message)
    receive(message)
    (event,) = [event for event in heard if event.name == "run.duplicate"]
    assert event.facts["state"] == "succeeded"
    assert event.level == logging.INFO


def _echo_of(survivor: Job) -> Job:
    fields: dict[str, Any] = {
        name: getattr(survivor, name)
        for name in ("task", "lane", "message_id", "created_at", "first_due_at", "due_at")
    }
    return Job.objects.create(survivor=survivor, awaited=True, reason=Reason.ECHO, **fields)


@pytest.mark.bar
def test_an_echo_waits_for_its_survivor_and_ends_like_it(scratch: Path) -> None:
    """It never runs the body; it comes back until the other has ended, then has the same result."""
    survivor = job_of(tasks.mark.delay("a", "v"))
    echo = _echo_of(survivor)
    assert state_of(deliver(echo)) == "RETRY"
    echo.refresh_from_db()
    assert (echo.state, echo.reason, echo.sent_at) == ("waiting", "echo", None)
    deliver(survivor)
    answer = deliver(echo)
    echo.refresh_from_db()
    assert (answer.retval, echo.state, echo.result) == ("v", "succeeded", '"v"')
    assert echo.answered_at is not None
    assert traces("a") == ["v"]


def test_an_echo_of_a_failed_job_fails_like_it(scratch: Path) -> None:
    """State, reason and error are the survivor's."""
    survivor = job_of(tasks.verdict.delay("a", "permanent"))
    echo = _echo_of(survivor)
    deliver(survivor)
    answer = deliver(echo)
    echo.refresh_from_db()
    assert state_of(answer) == "FAILURE"
    assert (echo.state, echo.reason) == ("failed", "permanent")
    assert isinstance(answer.info.retval, JobError)


def test_an_echo_of_a_purged_job_fails(scratch: Path) -> None:
    """Nobody waits for ever for an answer that can't come."""
    survivor = job_of(tasks.mark.delay("a"))
    echo = _echo_of(survivor)
    survivor.delete()
    assert state_of(deliver(echo)) == "FAILURE"
    echo.refresh_from_db()
    assert (echo.state, echo.reason) == ("failed", "echo")


class _Message:
    def __init__(self, headers: dict[str, Any]) -> None:
        self.headers = headers


def test_a_message_nobody_can_run_parks_its_job(scratch: Path) -> None:
    """An unknown task and an undecodable body end failed, with the reason, kept for replay."""
    unknown, broken = job_of(tasks.mark.delay("a")), job_of(tasks.mark.delay("b"))
    strangers.park_unknown(message=_Message(send(unknown)), exc=KeyError("no.such.task"))
    strangers.park_unreadable(message=_Message(send(broken)), exc=ValueError("bad"))
    assert set(Job.objects.values_list("state", "reason")) == {
        ("failed", "unknown_task"),
        ("failed", "undecodable"),
    }


def test_a_job_of_another_ledger_is_parked_too(scratch: Path) -> None:
    """Nobody knows the task that would name its database; all of them are asked."""
    elsewhere.delay("a")
    job = Job.objects.using("other").get()
    header = {JOB_HEADER: str(NamedJob(job.pk, job.public_id))}
    strangers.park_unknown(message=SimpleNamespace(headers=header), exc=KeyError("no.such.task"))
    job.refresh_from_db()
    assert (job.state, job.reason) == ("failed", "unknown_task")


def test_a_stranger_without_a_job_is_left_to_celery(scratch: Path) -> None:
    """No header, no ledger; and a job that has ended stays as it is."""
    strangers.park_unknown(message=_Message({}), exc=KeyError("x"))
    job = job_of(tasks.mark.delay("a"))
    deliver(job)
    strangers.park_unknown(message=_Message(message_of(job)), exc=KeyError("x"))
    job.refresh_from_db()
    assert job.state == "succeeded"
