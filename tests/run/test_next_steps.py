"""Links, chains and chords around guarded tasks: handed on once, with the job's end."""

from pathlib import Path
from typing import Any

import pytest
from celery import chain

from celery_guard.models import Job, OutboxMessage
from celery_guard.outbox.envelope import Envelope
from tests.project.shop import tasks
from tests.project.shop.models import Mark
from tests.project.shop.witness import traces
from tests.run.delivery import deliver, job_of, receive, send, state_of
from tests.run.marks import on_database
from tests.run.tasks import ACTIONS, echo, follow, in_steps, told_of_error

pytestmark = on_database


def _others(job: Job) -> list[Job]:
    return list(Job.objects.exclude(pk=job.pk).order_by("pk"))


def _first(handle: Any) -> Job:
    while handle.parent is not None:
        handle = handle.parent
    return job_of(handle)


@pytest.mark.bar
def test_the_next_step_is_committed_with_the_job(scratch: Path) -> None:
    """A chain's second step is a job of its own once the first has succeeded, and gets its result."""
    handle = chain(echo.s(3), tasks.add.s(4)).delay()
    first = _first(handle)
    assert state_of(deliver(first)) == "SUCCESS"
    (second,) = _others(first)
    assert (str(second.public_id), second.task) == (handle.id, tasks.add.name)
    assert deliver(second).retval == 7


@pytest.mark.bar
def test_a_copy_of_a_finished_step_hands_nothing_on(scratch: Path) -> None:
    """The answer to a duplicate does not dispatch the chain again."""
    first = _first(chain(echo.s(3), tasks.add.s(4)).delay())
    message = send(first)
    assert [receive(message).retval, receive(message).retval] == [3, 3]
    assert len(_others(first)) == 1


def test_a_copy_of_a_finished_step_publishes_nothing(scratch: Path, redis_client: Any) -> None:
    """An unguarded next step has no key to save it: it must not be sent a second time."""
    message = send(_first(chain(echo.s(3), follow.s()).delay()))
    assert [receive(message).retval, receive(message).retval] == [3, 3]
    assert not [key for key in redis_client.scan_iter() if b"celery-task-meta" not in key]


def test_an_unguarded_next_step_is_in_the_outbox(scratch: Path, redis_client: Any) -> None:
    """Whatever the capture setting: nothing of the canvas is sent past the transaction."""
    job = job_of(echo.apply_async((3,), link=[follow.s(note="x"), follow.s(note="y")]))
    deliver(job)
    assert [(other.task, other.plain) for other in _others(job)] == [(follow.name, True)] * 2
    assert not [key for key in redis_client.scan_iter() if b"celery-task-meta" not in key]


def test_a_failed_attempt_hands_nothing_on(scratch: Path) -> None:
    """Neither in the outbox nor on the broker; the errbacks run as in Celery."""
    signature = tasks.verdict.s("a", "bug").on_error(told_of_error.s())
    job = job_of(signature.apply_async(link=follow.s()))
    assert state_of(deliver(job)) == "FAILURE"
    assert _others(job) == []


@pytest.mark.bar
@pytest.mark.parametrize(
    "step", [tasks.mark.si(None), tasks.add.si(1, 2, 3)], ids=["no key", "does not fit"]
)
def test_a_step_that_cannot_be_enqueued_fails_by_itself(step: Any, scratch: Path) -> None:
    """The first step stays done; the second is a failed job with the reason, and is told so."""
    handle = chain(tasks.mark.s("a", "v"), step, follow.s()).delay()
    first = _first(handle)
    assert state_of(deliver(first)) == "SUCCESS"
    assert Mark.objects.count() == 1
    (second,) = _others(first)
    assert (second.state, second.reason, second.task) == ("failed", "unsendable", step.task)
    assert str(second.public_id) == handle.parent.id
    with pytest.raises(Exception, match=r"."):
        handle.get(timeout=5)


def test_a_key_conflict_of_a_step_is_its_own_failure(scratch: Path) -> None:
    """The key belongs to a job with other arguments: the step fails, the chain's start stays."""
    tasks.mark.delay("taken", "other")
    first = _first(chain(echo.s("v"), tasks.mark.si("taken", "mine")).delay())
    assert state_of(deliver(first)) == "SUCCESS"
    failed = Job.objects.get(state="failed")
    assert failed.error is not None
    assert "KeyConflict" in failed.error


def test_a_chain_goes_on_with_what_finish_was_given(scratch: Path) -> None:
    """The step is in the finish's transaction, before the body returns."""
    first = _first(chain(in_steps.s("a", 5, 5), tasks.add.s(1)).delay())
    seen: list[int] = []
    ACTIONS["a.after"] = lambda: seen.append(len(_others(first)))
    deliver(first)
    (second,) = _others(first)
    assert seen == [1]
    assert deliver(second).retval == 6


def test_a_step_knows_its_parent(scratch: Path) -> None:
    """Parent and root ids are those that Celery would have sent."""
    first = _first(chain(echo.s(3), echo.s()).delay())
    deliver(first)
    (second,) = _others(first)
    headers = Envelope.decode(OutboxMessage.objects.get(pk=second.message_id).envelope).headers
    assert headers["parent_id"] == headers["root_id"] == str(first.public_id)
    assert traces("echo") == [""]
