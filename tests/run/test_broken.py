"""Bodies and connections that break: the job ends with a reason and its neighbours are unharmed."""

from collections.abc import Callable
from pathlib import Path

import pytest
from django.db import OperationalError, connection, transaction

from celery_guard.jobs import claiming
from celery_guard.jobs.named import NamedJob
from celery_guard.models import Attempt, Job
from celery_guard.run import take
from celery_guard.run.owner import owner
from tests.project.shop import tasks
from tests.project.shop.models import Mark
from tests.project.shop.witness import traces
from tests.run.delivery import deliver, job_of, receive, send, state_of
from tests.run.marks import on_database
from tests.run.sessions import elsewhere, end_session, session
from tests.run.tasks import ACTIONS, breaks, breaks_steps, in_body

pytestmark = on_database


def _works_afterwards() -> bool:
    # Each test has its own rows, so the count tells whether this one and only this one wrote.
    before = Mark.objects.count()
    job = job_of(tasks.mark.delay(f"next-{before}"))
    return state_of(deliver(job)) == "SUCCESS" and Mark.objects.count() == before + 1


@pytest.mark.bar
@pytest.mark.parametrize(
    ("how", "state", "reason"),
    [
        ("integrity", "failed", "unknown_error"),
        ("at commit", "failed", "unknown_error"),
        ("aborted", "failed", "unknown_error"),
        ("killed", "waiting", "retry"),
        ("closed", "failed", "unknown_error"),
        ("left open", "failed", "unknown_error"),
    ],
)
def test_a_spoiled_transaction_is_stored_on_a_clean_one(
    how: str, state: str, reason: str, scratch: Path
) -> None:
    """Whatever became of the body's transaction: nothing of it stays, the failure does, the next job works."""
    if connection.vendor == "mysql" and how in {"at commit", "aborted"}:
        pytest.skip("MariaDB checks at once and aborts no transaction")
    job = job_of(breaks.delay("a", how))
    deliver(job)
    job.refresh_from_db()
    assert (job.state, job.reason) == (state, reason)
    assert not Mark.objects.exists()
    assert Attempt.objects.count() == 1
    assert _works_afterwards()


@pytest.mark.parametrize(
    ("how", "state"), [("left open", "failed"), ("autocommit off", "failed"), ("killed", "waiting")]
)
def test_a_spoiled_connection_of_a_body_in_steps(how: str, state: str, scratch: Path) -> None:
    """A transaction by hand that is left open is rolled back, and the connection renewed."""
    job = job_of(breaks_steps.delay("a", how))
    deliver(job)
    job.refresh_from_db()
    assert job.state == state
    assert not Mark.objects.exists()
    assert _works_afterwards()


def _raise_after_commit(error: BaseException) -> Callable[[], None]:
    def action() -> None:
        def hook() -> None:
            raise error

        transaction.on_commit(hook)

    return action


@pytest.mark.bar
@pytest.mark.parametrize(
    "error",
    [ValueError("hook"), OperationalError("answer lost")],
    ids=["hook", "connection"],
)
def test_an_exception_after_the_commit_is_a_success(error: BaseException, scratch: Path) -> None:
    """The row says that it is committed: nothing is recorded against it and the body isn't run again."""
    job = job_of(in_body.delay("a"))
    ACTIONS["a"] = _raise_after_commit(error)
    message = send(job)
    assert state_of(receive(message)) == "SUCCESS"
    job.refresh_from_db()
    assert (job.state, Mark.objects.count()) == ("succeeded", 1)
    assert not Attempt.objects.exists()
    assert state_of(receive(message)) == "SUCCESS"
    assert traces("a") == [""]


def test_an_exit_after_the_commit_ends_the_process_and_undoes_nothing(scratch: Path) -> None:
    """The process ends as it was told to; the next copy of the message is answered."""
    job = job_of(in_body.delay("a"))
    ACTIONS["a"] = _raise_after_commit(SystemExit(1))
    message = send(job)
    with pytest.raises(SystemExit):
        receive(message)
    job.refresh_from_db()
    assert (job.state, job.lost, Mark.objects.count()) == ("succeeded", 0, 1)
    assert state_of(receive(message)) == "SUCCESS"
    assert traces("a") == [""]


def test_an_idle_connection_that_has_died_is_renewed_at_the_claim(scratch: Path) -> None:
    """A restarted server or a firewall costs a reconnect, not a job."""
    job = job_of(tasks.mark.delay("a"))
    message = send(job)
    number = session()
    elsewhere(lambda: end_session(number))()
    assert state_of(receive(message)) == "SUCCESS"
    assert Mark.objects.count() == 1


def test_a_claim_whose_answer_was_lost_is_given_back(scratch: Path) -> None:
    """Held in this process' name and unknown to it: waiting again at once, nothing used up."""
    job = job_of(tasks.mark.delay("a"))
    send(job)
    assert claiming.claim("default", NamedJob(job.pk), owner=owner(), lease=60)
    take._give_back_unseen("default", NamedJob(job.pk))
    job.refresh_from_db()
    assert (job.state, job.reason, job.lost, job.failures) == ("waiting", "outage", 0, 0)


def test_a_living_attempt_is_not_given_back(scratch: Path) -> None:
    """The same look during a run leaves the job alone."""
    job = job_of(in_body.delay("a"))
    seen: list[str] = []

    def look() -> None:
        take._give_back_unseen("default", NamedJob(job.pk))
        seen.append(Job.objects.get(pk=job.pk).state)

    ACTIONS["a"] = elsewhere(look)
    assert state_of(deliver(job)) == "SUCCESS"
    assert seen == ["running"]
