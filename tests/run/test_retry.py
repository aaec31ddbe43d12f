"""`self.retry`, `self.replace` and Celery's other ways out of a body."""

from pathlib import Path
from typing import Any

import pytest
from celery import current_app
from celery.exceptions import MaxRetriesExceededError
from kombu.utils import json

from celery_guard.jobs.clock import in_seconds
from celery_guard.models import Attempt, Job, OutboxMessage
from celery_guard.outbox.envelope import Envelope
from tests.project.shop import tasks
from tests.project.shop.models import Mark
from tests.project.shop.witness import traces
from tests.run.delivery import deliver, job_of, receive, send, state_of
from tests.run.marks import on_database
from tests.run.tasks import (
    again_with,
    asks,
    asks_quietly,
    auto,
    auto_any,
    ends,
    follow,
    limited,
    replaced,
    throttled,
)

pytestmark = on_database


def _seconds_until_due(job: Job) -> float:
    job.refresh_from_db()
    assert job.due_at is not None
    now = Job.objects.annotate(now=in_seconds(0)).values_list("now", flat=True).get(pk=job.pk)
    return float((job.due_at - now).total_seconds())


@pytest.mark.bar
def test_a_transient_failure_is_a_due_row(scratch: Path) -> None:
    """Rolled back, waiting and unsent, one failure used up; it succeeds in its turn."""
    job = job_of(tasks.flaky.delay("a", 2))
    for failures in (1, 2):
        assert state_of(deliver(job)) == "RETRY"
        job.refresh_from_db()
        assert (job.state, job.reason, job.failures) == ("waiting", "retry", failures)
        assert (job.sent_at, job.owner) == (None, None)
        assert not Mark.objects.exists()
    assert state_of(deliver(job)) == "SUCCESS"
    job.refresh_from_db()
    assert (job.state, job.starts, job.failures) == ("succeeded", 3, 2)
    assert [a.outcome for a in Attempt.objects.order_by("number")] == ["retry", "retry"]


def test_nothing_is_published_by_a_retry(scratch: Path, redis_client: Any) -> None:
    """The broker is not touched: the row is the retry."""
    deliver(job_of(tasks.flaky.delay("a", 1)))
    assert not [key for key in redis_client.scan_iter() if b"celery-task-meta" not in key]


def test_a_retry_that_lost_its_acknowledgement_runs_once(scratch: Path) -> None:
    """The original comes back after its retry was stored: it is dropped, whether sent again or not."""
    job = job_of(tasks.flaky.delay("a", 1))
    message = send(job)
    assert state_of(receive(message)) == "RETRY"
    assert state_of(receive(message)) == "IGNORED"
    assert state_of(deliver(job)) == "SUCCESS"
    assert len(traces("a")) == 2


def test_the_message_of_a_retry_is_unchanged(scratch: Path) -> None:
    """Headers, priority, queue and job stay; Celery's retry counter comes from the ledger."""
    job = job_of(
        asks.apply_async(
            ("a", {"countdown": 0}), headers={"tenant": "t1"}, priority=7, queue=_queue("low")
        )
    )
    before = (job.message_id, OutboxMessage.objects.get().envelope)
    deliver(job)
    job.refresh_from_db()
    assert (job.message_id, OutboxMessage.objects.get().envelope) == before
    assert json.loads(before[1])["headers"]["tenant"] == "t1"
    deliver(job)
    assert traces("a") == ["0", "1"]


def _queue(lane: str) -> str:
    from celery_guard.conf import guard_settings

    return guard_settings().lane(lane).queue


@pytest.mark.bar
def test_new_arguments_survive_a_broad_autoretry(scratch: Path) -> None:
    """autoretry_for=(Exception,) does not catch the task's own Retry and lose what it carries."""
    job = job_of(again_with.delay("a", 0))
    for _ in range(3):
        answer = deliver(job)
    assert (state_of(answer), answer.retval) == ("SUCCESS", 2)
    assert traces("a") == ["0", "1", "2"]
    assert Job.objects.count() == 1
    assert Mark.objects.count() == 1


def test_new_options_are_in_the_next_message(scratch: Path) -> None:
    """A queue given to retry() is where the next message goes; the job stays the same."""
    job = job_of(asks.delay("a", {"countdown": 0, "queue": _queue("low")}))
    deliver(job)
    job.refresh_from_db()
    assert job.message is not None
    assert Envelope.decode(job.message.envelope).routing_key == _queue("low")
    assert state_of(deliver(job)) == "SUCCESS"


@pytest.mark.parametrize(
    ("given", "args", "kwargs"),
    [
        ({"args": ["b", {}]}, ["b", {}], {}),
        ({"kwargs": {"name": "c"}}, ["c", {"kwargs": {"name": "c"}}], {}),
        ({"kwargs": {"times": 5}}, ["a", {"kwargs": {"times": 5}}], {"times": 5}),
    ],
)
def test_arguments_are_merged_as_celery_does(
    given: dict[str, Any], args: list[Any], kwargs: dict[str, Any], scratch: Path
) -> None:
    """What is not given stays; a keyword takes the place of the positional argument it names."""
    job = job_of(asks.delay("a", given))
    deliver(job)
    job.refresh_from_db()
    assert job.message is not None
    assert json.loads(bytes(job.message.body).decode())[:2] == [args, kwargs]


@pytest.mark.parametrize(("options", "seconds"), [({"countdown": 50}, 50), ({"eta": 90}, 90)])
def test_the_time_given_to_retry_wins(
    options: dict[str, Any], seconds: float, scratch: Path
) -> None:
    """Countdown by the database's clock, eta as the instant it is."""
    job = job_of(asks.delay("a", options))
    deliver(job)
    assert seconds - 10 < _seconds_until_due(job) <= seconds + 1


def test_max_retries_of_the_task_is_the_budget(scratch: Path) -> None:
    """The third failure of max_retries=2 is the end: dead, and Celery is told why."""
    job = job_of(asks.delay("a", {"countdown": 0}, 9))
    answers = [deliver(job) for _ in range(3)]
    job.refresh_from_db()
    assert [state_of(answer) for answer in answers] == ["RETRY", "RETRY", "FAILURE"]
    assert isinstance(answers[-1].info.retval, MaxRetriesExceededError)
    assert (job.state, job.reason) == ("dead", "budget")


def test_a_limit_given_in_one_call_does_not_stay(scratch: Path) -> None:
    """Task objects are shared: the next job sees the task's own limit."""
    once = job_of(asks.delay("a", {"countdown": 0, "max_retries": 0}))
    assert state_of(deliver(once)) == "FAILURE"
    other = job_of(asks.delay("b", {"countdown": 0}, 2))
    assert [state_of(deliver(other)) for _ in range(3)] == ["RETRY", "RETRY", "SUCCESS"]
    assert asks.max_retries == 2


def test_a_quiet_retry_keeps_what_was_written(scratch: Path) -> None:
    """throw=False and a normal return: the writes stay, and the job runs again."""
    job = job_of(asks_quietly.delay("a"))
    assert state_of(deliver(job)) == "RETRY"
    assert Mark.objects.count() == 1
    assert state_of(deliver(job)) == "SUCCESS"
    assert Mark.objects.count() == 2


def test_celerys_automatic_retry_with_its_backoff(scratch: Path) -> None:
    """autoretry_for asks for a retry like the body would; retry_backoff says when."""
    job = job_of(auto.delay("a", 1))
    assert state_of(deliver(job)) == "RETRY"
    assert 0 < _seconds_until_due(job) <= 3
    assert state_of(deliver(job)) == "SUCCESS"


@pytest.mark.bar
@pytest.mark.parametrize(
    ("error", "state", "reason"),
    [
        ("RetryAfter", "waiting", "snooze"),
        ("Throttled", "waiting", "rate"),
        ("Permanent", "failed", "permanent"),
        ("UnknownOutcome", "reconciling", "uncertain"),
    ],
)
def test_an_automatic_retry_of_everything_leaves_verdicts_alone(
    scratch: Path, error: str, state: str, reason: str
) -> None:
    """autoretry_for=(Exception,) neither counts, nor repeats, nor calls again what they forbid."""
    job = job_of(auto_any.delay("a", error))
    deliver(job)
    job.refresh_from_db()
    assert (job.state, job.reason, job.failures) == (state, reason, 0)


def test_the_last_transient_failure_is_dead_with_the_original_error(scratch: Path) -> None:
    """Errbacks and whoever waits get the exception itself."""
    job = job_of(limited.delay("a"))
    answers = [deliver(job), deliver(job)]
    job.refresh_from_db()
    assert [state_of(answer) for answer in answers] == ["RETRY", "FAILURE"]
    assert isinstance(answers[1].info.retval, ConnectionError)
    assert (job.state, job.reason, job.failures) == ("dead", "budget", 1)


def test_waiting_for_a_limit_uses_up_nothing(scratch: Path) -> None:
    """Fifty RetryAfter with a budget of one failure."""
    job = job_of(throttled.delay("a"))
    for _ in range(50):
        assert state_of(deliver(job)) == "RETRY"
    job.refresh_from_db()
    assert (job.state, job.reason, job.failures, job.starts) == ("waiting", "snooze", 0, 50)


def test_ignore_is_a_success_that_nobody_is_told_of(scratch: Path) -> None:
    """The writes stay, Celery's state stays as it was, and a copy is ignored too."""
    job = job_of(ends.delay("a", "ignore"))
    message = send(job)
    assert [state_of(receive(message)), state_of(receive(message))] == ["IGNORED", "IGNORED"]
    job.refresh_from_db()
    assert (job.state, job.reason, Mark.objects.count()) == ("succeeded", "ignored", 1)
    assert job.answered_at is not None


def test_reject_fails_and_a_requeue_waits_its_turn(scratch: Path) -> None:
    """The broker never requeues a hint; the ledger knows when the job is due."""
    rejected, requeued = job_of(ends.delay("a", "reject")), job_of(ends.delay("b", "requeue"))
    assert state_of(deliver(rejected)) == "REJECTED"
    assert state_of(deliver(requeued)) == "RETRY"
    rejected.refresh_from_db()
    requeued.refresh_from_db()
    assert (rejected.state, rejected.reason) == ("failed", "rejected")
    assert (requeued.state, requeued.reason, requeued.failures) == ("waiting", "snooze", 0)
    assert not Mark.objects.exists()


def test_a_body_that_exits_counts_as_a_lost_worker(scratch: Path) -> None:
    """sys.exit() in a body may take the worker down again and again: the third time it is poison."""
    job = job_of(ends.delay("a", "exit"))
    for expected in ("waiting", "waiting", "dead"):
        with pytest.raises(SystemExit):
            deliver(job)
        job.refresh_from_db()
        assert job.state == expected
    assert (job.reason, job.failures) == ("poison", 0)


@pytest.mark.parametrize("guarded", [True, False])
def test_a_replacement_takes_the_place_and_the_id(guarded: bool, scratch: Path) -> None:
    """It is enqueued with the end of the job it replaces, and the handle names it from then on."""
    by = tasks.mark.s("b", "v") if guarded else follow.s("v")
    handle = replaced.delay("a", json.loads(json.dumps(dict(by))))
    job = job_of(handle)
    message = send(job)
    assert state_of(receive(message)) == "IGNORED"
    job.refresh_from_db()
    assert (job.state, job.reason, Mark.objects.count()) == ("succeeded", "replaced", 1)
    other = Job.objects.exclude(pk=job.pk).get()
    assert other.message is not None
    assert (other.task, Envelope.decode(other.message.envelope).headers["id"]) == (
        by.task,
        handle.id,
    )
    assert other.plain or str(other.public_id) == handle.id
    assert state_of(receive(message)) == "IGNORED"
    assert len(traces("a")) == 1


def test_a_replacement_is_gone_when_the_attempt_is(scratch: Path) -> None:
    """A replacement that can't be enqueued is the body's own failure; nothing stays."""
    job = job_of(replaced.delay("a", json.loads(json.dumps(dict(tasks.mark.s(None))))))
    assert state_of(deliver(job)) == "FAILURE"
    assert Job.objects.count() == 1
    assert not Mark.objects.exists()


def test_an_eager_retry_is_the_same_job(scratch: Path) -> None:
    """apply() runs all attempts at once, on one row."""
    result = tasks.flaky.apply(("a", 0))
    assert result.get() == 1
    eager = asks.apply(("b", {"countdown": 60}, 2))
    job = Job.objects.get(task=asks.name)
    assert (eager.get(), job.state, job.starts, job.failures) == ("done", "succeeded", 3, 2)
    assert current_app.conf.task_always_eager is False
