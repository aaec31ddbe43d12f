"""The handle answers from the ledger; the result backend is asked only to be told of the end."""

import os
from typing import Any
from urllib.parse import urlsplit

import pytest
from celery import states
from celery.exceptions import TimeoutError  # noqa: A004 - what callers catch
from django.utils import timezone

from celery_guard.enqueue.handle import JobHandle
from celery_guard.errors import JobError
from celery_guard.jobs.models import Job
from celery_guard.jobs.states import State
from tests.enqueue.rows import end, jobs
from tests.enqueue.sessions import LONG, apart
from tests.enqueue.tasks import keyed, unkeyed
from tests.enqueue.watch import Watch
from tests.kit.wait import wait_for

pytestmark = [
    # Celery's own calls, with the newest redis-py.
    pytest.mark.filterwarnings("ignore:Call to deprecated"),
    pytest.mark.mariadb,
    pytest.mark.django_db,
]

STATES = [
    (State.SUCCEEDED, states.SUCCESS),
    (State.FAILED, states.FAILURE),
    (State.DEAD, states.FAILURE),
    (State.CANCELLED, states.REVOKED),
    (State.EXPIRED, states.REVOKED),
]


@pytest.mark.parametrize(("state", "celery_state"), STATES)
def test_the_state_is_the_ledgers(state: State, celery_state: str) -> None:
    """Without a look at the result backend, and the same for a handle made from the id."""
    handle = keyed.delay("a")
    assert handle.state == states.PENDING
    end(jobs()[0].pk, state)
    with Watch() as watch:
        assert handle.state == keyed.AsyncResult(handle.id).state == celery_state
    assert urlsplit(os.environ["REDIS_URL"]).port not in watch.ports()


def test_a_running_job_is_started() -> None:
    """Held by an attempt."""
    handle = keyed.delay("a")
    now = timezone.now()
    Job.objects.update(state=State.RUNNING, sent_at=now, owner=handle.public_id, lease_until=now)
    assert handle.state == states.STARTED


def test_a_job_that_is_tried_again_says_so() -> None:
    """Waiting after a failure is Celery's RETRY."""
    handle = keyed.delay("a")
    Job.objects.update(reason="retry")
    assert handle.state == states.RETRY


def test_a_finished_job_gives_its_stored_result() -> None:
    """As it was returned, with its types."""
    handle = keyed.delay("a")
    end(jobs()[0].pk, State.SUCCEEDED)
    Job.objects.update(result='{"__type__": "decimal", "__value__": "1.10"}')
    assert (str(handle.get(timeout=1)), handle.successful()) == ("1.10", True)


def test_a_failed_job_raises_its_stored_error() -> None:
    """One typed error that carries state and reason."""
    handle = keyed.delay("a")
    end(jobs()[0].pk, State.FAILED)
    Job.objects.update(error='{"type": "ValueError", "message": "no"}', reason="permanent")
    with pytest.raises(JobError, match="ValueError: no") as told:
        handle.get(timeout=1)
    assert (told.value.state, told.value.reason) == ("failed", "permanent")
    assert handle.get(timeout=1, propagate=False) is told.value or handle.failed()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("task_id", [None, "mine"])
def test_waiting_ends_when_the_backend_tells_of_the_end(
    task_id: str | None, redis_client: Any
) -> None:
    """Who waits is subscribed; what the worker commits and then stores wakes him."""
    handle = unkeyed.apply_async((1,), task_id=task_id)
    waiting = apart(lambda: unkeyed.AsyncResult(handle.id).get(timeout=LONG))
    channel = f"celery-task-meta-{handle.id}"
    wait_for(lambda: redis_client.pubsub_numsub(channel)[0][1], what="the subscription")
    # First: the waiter may look at any moment.
    Job.objects.update(result='"done"')
    end(jobs()[0].pk, State.SUCCEEDED)
    handle.backend.store_result(handle.id, "done", states.SUCCESS)
    assert waiting.result(LONG) == "done"


@pytest.mark.django_db(transaction=True)
def test_an_ignored_result_is_waited_for_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Celery's own answer to that is None at once, which says "done" of work that is not."""
    monkeypatch.setattr(unkeyed, "ignore_result", True)
    handle = unkeyed.delay(1)
    with pytest.raises(TimeoutError):
        handle.get(timeout=0.05)
    waiting = apart(lambda: handle.get(timeout=LONG))
    Job.objects.update(result='"done"')
    end(jobs()[0].pk, State.SUCCEEDED)
    assert waiting.result(LONG) == "done"


def test_what_ended_while_one_began_to_wait_is_not_missed() -> None:
    """The look at the ledger that comes after the subscription counts for any id."""
    handle = unkeyed.apply_async((1,), task_id="mine")
    end(jobs()[0].pk, State.SUCCEEDED)
    Job.objects.update(result='"done"')
    # As in ``get`` when the first look still found the job waiting.
    assert super(JobHandle, handle).get(timeout=10) == "done"


def test_a_handle_of_nothing_is_pending() -> None:
    """An id that no job has: unknown, as Celery says it."""
    handle: Any = keyed.AsyncResult("never heard of")
    assert (handle.job, handle.state) == (None, states.PENDING)
