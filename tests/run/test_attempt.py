"""One attempt, from the message to the answer, on a real database."""

import threading
from pathlib import Path

import pytest
from celery import current_app
from django.db import connection, connections, transaction

from celery_guard import GuardError, current_job
from celery_guard.errors import NoCurrentJob
from celery_guard.events import Event
from celery_guard.jobs import claiming, rescuing, running
from celery_guard.jobs.clock import in_seconds
from celery_guard.jobs.named import NamedJob
from celery_guard.models import Attempt, Job
from celery_guard.run.owner import owner, owner_of
from celery_guard.run.rescue import rescue
from tests.project.shop import tasks
from tests.project.shop.models import Mark, Payment
from tests.project.shop.witness import traces
from tests.run.delivery import deliver, job_of, message_of, receive, send, state_of
from tests.run.marks import on_database
from tests.run.sessions import elsewhere
from tests.run.tasks import ACTIONS, echo, in_body, in_steps, on_other, unencodable, unfinished

pytestmark = on_database


def _take_away(job: Job) -> None:
    Job.objects.filter(pk=job.pk).update(lease_until=in_seconds(-1))
    rescue("default")


def test_a_body_and_its_end_are_committed_together(scratch: Path) -> None:
    """A good attempt leaves the business row, the result and the state, and no attempt row."""
    job = job_of(tasks.mark.delay("a", "v"))
    answer = deliver(job)
    job.refresh_from_db()
    assert (state_of(answer), answer.retval) == ("SUCCESS", "v")
    assert (job.state, job.reason, job.result) == ("succeeded", "done", '"v"')
    assert (job.fence, job.starts, job.owner, job.sent_at, job.due_at) == (1, 1, None, None, None)
    assert Mark.objects.count() == 1
    assert not Attempt.objects.exists()


def test_a_second_copy_is_answered_with_the_stored_result(scratch: Path) -> None:
    """The same message again runs no body and returns what the first run returned."""
    job = job_of(tasks.mark.delay("a", "v"))
    message = send(job)
    receive(message)
    answer = receive(message)
    assert (state_of(answer), answer.retval) == ("SUCCESS", "v")
    assert traces("a") == ["v"]
    assert Mark.objects.count() == 1


@pytest.mark.parametrize(
    ("how", "reason"),
    [("permanent", "permanent"), ("declared", "permanent"), ("bug", "unknown_error")],
)
def test_a_failure_rolls_back_and_is_remembered(how: str, reason: str, scratch: Path) -> None:
    """What the body wrote is gone; the job says how it ended; the attempt says why."""
    job = job_of(tasks.verdict.delay("x", how))
    answer = deliver(job)
    job.refresh_from_db()
    assert state_of(answer) == "FAILURE"
    assert (job.state, job.reason) == ("failed", reason)
    assert not Mark.objects.exists()
    attempt = Attempt.objects.get()
    assert (attempt.number, attempt.outcome, attempt.reason) == (1, "failed", reason)
    assert len(attempt.fingerprint) == 32


@pytest.mark.parametrize("value", [None, [1, "a"], {"n": 1.5}, "\x00\udc80"], ids=ascii)
def test_the_result_is_kept_for_later_copies(value: object, scratch: Path) -> None:
    """Whatever JSON can say comes back to a duplicate as it went in."""
    job = job_of(echo.delay(value if value != "\x00\udc80" else "x"))
    message = send(job)
    assert receive(message).retval == receive(message).retval
    assert len(traces("echo")) == 1


def test_an_unencodable_result_undoes_nothing(scratch: Path) -> None:
    """The business row stays and the job has succeeded, though its result can't be kept."""
    job = job_of(unencodable.delay("a"))
    deliver(job)
    job.refresh_from_db()
    assert (job.state, job.result) == ("succeeded", None)
    assert Mark.objects.count() == 1


def test_an_unsent_job_is_not_claimed(scratch: Path, heard: list[Event]) -> None:
    """A stale copy of a message that meets a job waiting for its time is dropped as a duplicate."""
    job = job_of(tasks.mark.apply_async(("a",), countdown=3600))
    answer = receive(message_of(job))
    job.refresh_from_db()
    assert state_of(answer) == "IGNORED"
    assert (job.state, job.starts, traces("a")) == ("waiting", 0, [])
    assert "run.duplicate" in {event.name for event in heard}
    assert "run.claim_failed" not in {event.name for event in heard}


def test_a_stale_copy_does_not_run_a_job_that_waits_for_its_retry(scratch: Path) -> None:
    """The twin of a message whose attempt was told to come back later finds an unsent job."""
    job = job_of(tasks.throttled.delay("a", 1, 3600))
    message = send(job)
    assert state_of(receive(message)) == "RETRY"
    assert state_of(receive(message)) == "IGNORED"
    job.refresh_from_db()
    assert (job.state, job.starts, job.failures) == ("waiting", 1, 0)


def test_a_purged_job_is_never_run(scratch: Path) -> None:
    """The header names a row that is gone: the message is dropped without a body."""
    job = job_of(tasks.mark.delay("a"))
    message = send(job)
    job.delete()
    assert state_of(receive(message)) == "IGNORED"
    assert traces("a") == []


def test_an_expired_job_is_not_run_and_says_so(scratch: Path) -> None:
    """By the database's clock; the key then takes a new call."""
    job = job_of(tasks.mark.apply_async(("a",), expires=3600))
    message = send(job)
    Job.objects.update(expires_at=in_seconds(-1))
    answer = receive(message)
    job.refresh_from_db()
    assert (state_of(answer), job.state, traces("a")) == ("FAILURE", "expired", [])
    assert job_of(tasks.mark.delay("a")).state == "waiting"


def test_a_message_without_a_job_is_adopted(scratch: Path) -> None:
    """Sent past the guard, by another service: it gets a row and runs once, however often it comes."""
    message = {**message_of(job_of(tasks.mark.delay("a"))), "id": "0" * 32}
    message.pop("guard_job")
    Job.objects.all().delete()
    answers = [receive(message), receive(message)]
    assert [state_of(answer) for answer in answers] == ["SUCCESS", "SUCCESS"]
    assert traces("a") == [""]
    assert Job.objects.get().state == "succeeded"


@pytest.mark.bar
def test_many_copies_at_once_run_one_body(scratch: Path) -> None:
    """Twenty deliveries of one message at a barrier: one claim, one business row."""
    message = send(job_of(tasks.mark.delay("a")))
    barrier = threading.Barrier(20)
    answers: list[str] = []

    def run() -> None:
        try:
            barrier.wait()
            answers.append(state_of(receive(message)))
        finally:
            connections.close_all()

    threads = [threading.Thread(target=run) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (Mark.objects.count(), len(traces("a"))) == (1, 1)
    assert set(answers) <= {"SUCCESS", "IGNORED"}
    assert len(answers) == 20


def test_a_copy_that_comes_during_the_run_is_dropped(scratch: Path) -> None:
    """While the first is still running the second is stopped by the claim."""
    message = send(job_of(in_body.delay("a")))
    seen: list[str] = []
    ACTIONS["a"] = elsewhere(lambda: seen.append(state_of(receive(message))))
    assert state_of(receive(message)) == "SUCCESS"
    assert seen == ["IGNORED"]
    assert len(traces("a")) == 1


@pytest.mark.bar
def test_an_attempt_whose_lease_was_taken_commits_nothing(scratch: Path) -> None:
    """The finish is fenced: a zombie's writes are rolled back and it tells Celery nothing."""
    job = job_of(in_body.delay("a"))
    ACTIONS["a"] = elsewhere(lambda: _take_away(job))
    answer = deliver(job)
    job.refresh_from_db()
    assert state_of(answer) == "IGNORED"
    assert not Mark.objects.exists()
    assert (job.state, job.reason, job.lost, job.fence) == ("waiting", "lost", 1, 2)


@pytest.mark.bar
def test_a_zombie_in_steps_loses_its_lease_at_the_finish(scratch: Path) -> None:
    """finish() locks the fence before it writes."""
    job = job_of(in_steps.delay("a"))
    ACTIONS["a.before"] = elsewhere(lambda: _take_away(job))
    assert state_of(deliver(job)) == "IGNORED"
    assert not Mark.objects.exists()


def test_a_finish_that_has_begun_is_not_rescued(scratch: Path) -> None:
    """The lock that finish() takes counts as life, however late the lease is."""
    job = job_of(in_steps.delay("a"))
    lapsed = Job.objects.filter(pk=job.pk)
    ACTIONS["a.before"] = elsewhere(lambda: lapsed.update(lease_until=in_seconds(-1)))
    ACTIONS["a.within"] = elsewhere(lambda: _take_away_locked(job))
    assert state_of(deliver(job)) == "SUCCESS"
    assert Mark.objects.count() == 1


def _take_away_locked(job: Job) -> None:
    with transaction.atomic():
        if connection.vendor == "postgresql":
            # Without the skipping of locked rows this would wait for ever.
            connection.cursor().execute("SET LOCAL statement_timeout = '5s'")
        rescuing.rescue("default", job.lane, limit=3)


def test_everything_with_an_old_fence_is_a_no_op(scratch: Path) -> None:
    """After a second claim the first holder can end, put back or keep nothing."""
    job = job_of(tasks.mark.delay("a"))
    send(job)
    first = claiming.claim("default", NamedJob(job.pk), owner=owner(), lease=60)
    assert first is not None
    _take_away(job)
    send(job)
    second = claiming.claim("default", NamedJob(job.pk), owner=owner_of(1), lease=60)
    assert second is not None
    assert (first.hold.fence, second.hold.fence) == (1, 3)
    before = Job.objects.filter(pk=job.pk).values().get()
    assert not running.succeed(first.hold)
    assert not running.put_back(first.hold, reason="retry")
    assert not running.end(first.hold, state="failed", reason="permanent", error="{}")
    assert not running.keep_result(first.hold, "1")
    with transaction.atomic():
        assert not running.lock(first.hold)
    assert rescuing.beat("default", owner(), {job.pk: 1}, 60) == {job.pk}
    assert Job.objects.filter(pk=job.pk).values().get() == before


def test_the_owner_is_compared_too(scratch: Path) -> None:
    """The same fence under another owner (a fence handed out twice by a crashed server) holds nothing."""
    job = job_of(tasks.mark.delay("a"))
    send(job)
    claim = claiming.claim("default", NamedJob(job.pk), owner=owner_of(1), lease=60)
    assert claim is not None
    forged = running.Hold(job_id=job.pk, fence=1, owner=owner_of(2), using="default")
    assert not running.succeed(forged)
    assert running.succeed(claim.hold)


def test_a_body_in_steps_finishes_with_its_writes(scratch: Path) -> None:
    """The provider key is stable and the result is what the body returned."""
    job = job_of(tasks.charge.delay(7))
    answer = deliver(job)
    job.refresh_from_db()
    payment = Payment.objects.get()
    assert payment.reference == answer.retval == traces("charge-7")[0]
    assert (job.state, job.result) == ("succeeded", f'"{payment.reference}"')


@pytest.mark.parametrize(
    ("result", "returned", "kept"),
    [(None, 5, "5"), (3, 5, "3"), (3, None, "3"), (None, None, None)],
)
def test_the_result_of_a_finished_body(
    result: object, returned: object, kept: str | None, scratch: Path
) -> None:
    """What finish() was given wins; else what the body returned afterwards is stored."""
    job = job_of(in_steps.delay("a", result, returned))
    answer = deliver(job)
    job.refresh_from_db()
    assert job.result == kept
    assert answer.retval == (result if result is not None else returned)


def test_an_error_after_the_finish_changes_nothing(scratch: Path) -> None:
    """What was committed is the truth, whatever the body does afterwards."""

    def fail() -> None:
        raise ValueError

    job = job_of(in_steps.delay("a", 4))
    ACTIONS["a.after"] = fail
    answer = deliver(job)
    job.refresh_from_db()
    assert (state_of(answer), answer.retval, job.state) == ("SUCCESS", 4, "succeeded")


def test_a_body_that_never_finishes_is_finished_by_the_guard(scratch: Path) -> None:
    """Returning is enough when there is nothing to write."""
    job = job_of(unfinished.delay("a"))
    answer = deliver(job)
    job.refresh_from_db()
    assert (answer.retval, job.state, job.result) == ("a", "succeeded", '"a"')


def test_finish_refuses_what_it_cannot_promise(scratch: Path) -> None:
    """In an atomic body, inside another transaction, and twice, it is an error at the call."""
    problems: list[str] = []

    def try_finish() -> None:
        job = current_job()
        with pytest.raises(GuardError) as caught, job.finish():
            pass
        problems.append(str(caught.value))

    def nested() -> None:
        with transaction.atomic():
            try_finish()

    ACTIONS["a"] = try_finish
    deliver(job_of(in_body.delay("a")))
    ACTIONS["b.before"], ACTIONS["b.after"] = nested, try_finish
    deliver(job_of(in_steps.delay("b")))
    assert len(problems) == 3


def test_a_direct_call_is_just_the_body(scratch: Path) -> None:
    """As a function the task makes no job, and no job is current in it, in another's body too."""
    seen: list[str] = []

    def look() -> None:
        with pytest.raises(NoCurrentJob):
            current_job()
        seen.append("no job")

    ACTIONS["inner"] = ACTIONS["alone"] = look
    ACTIONS["outer"] = lambda: in_body("inner")
    deliver(job_of(in_body.delay("outer")))
    in_body("alone")
    assert (seen, Job.objects.count()) == (["no job"] * 2, 1)


def test_the_body_sees_its_job(scratch: Path) -> None:
    """Ids, key, counts and a provider key that depends on operation, name and item."""
    job = job_of(in_body.delay("a"))
    seen: list[object] = []

    def look() -> None:
        current = current_job()
        seen.extend([current.id, current.public_id, current.key, current.fence, current.starts])
        keys = {current.provider_key(*args) for args in [("mail",), ("sms",), ("mail", "1")]}
        assert len(keys) == 3
        assert all(len(key) == 64 for key in keys)

    ACTIONS["a"] = look
    assert state_of(deliver(job)) == "SUCCESS"
    assert seen == [job.pk, job.public_id, "in-body:a", 1, 1]
    with pytest.raises(NoCurrentJob):
        current_job()


def test_an_eager_task_runs_through_the_ledger(scratch: Path) -> None:
    """apply() adopts, claims directly and ends the job."""
    result = tasks.mark.apply(("a", "v"))
    job = Job.objects.get()
    assert (result.get(), job.state, job.starts) == ("v", "succeeded", 1)


def test_an_eager_app_runs_each_call_through_the_ledger(
    scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """task_always_eager: a row for every job, the key holds, finish() and links work."""
    monkeypatch.setitem(current_app.conf.changes, "task_always_eager", True)
    results = [tasks.mark.delay("a", "v").get() for _ in range(2)]
    reference = tasks.charge.delay(1).get()
    tasks.mark.apply_async(("b",), link=tasks.mark.si("c"))
    assert results == ["v", "v"]
    assert Payment.objects.get().reference == reference
    assert sorted(Mark.objects.values_list("name", flat=True)) == ["a", "b", "c"]
    assert set(Job.objects.filter(survivor=None).values_list("state", flat=True)) == {"succeeded"}


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_a_task_of_another_database_is_settled_there(scratch: Path) -> None:
    """Claim, retry, end and history are in the database of the task's data, none in the default one."""
    job = Job.objects.using("other").get(pk=job_of(on_other.delay("a", 1)).pk)
    for expected in ("RETRY", "SUCCESS"):
        Job.objects.using("other").filter(pk=job.pk).update(sent_at=in_seconds(0))
        assert state_of(receive(message_of(job))) == expected
    job.refresh_from_db()
    assert (job.state, job.starts, Mark.objects.using("other").count()) == ("succeeded", 2, 1)
    assert Attempt.objects.using("other").count() == 1
    for model in (Job, Mark, Attempt):
        assert not model.objects.exists()
