"""A message that came without a job gets one: the same for the same key, or the same task id."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from celery_guard.enqueue.adopt import adopt
from celery_guard.errors import KeyConflict, MissingKey
from celery_guard.jobs.models import Job
from tests.enqueue.rows import counts, envelope_of, headers_of, jobs
from tests.enqueue.tasks import keyed, unkeyed

pytestmark = [pytest.mark.mariadb, pytest.mark.django_db]


@contextmanager
def arriving(task: Any, *args: Any, **request: Any) -> Iterator[Any]:
    """The task as its body sees it while a worker runs a message."""
    task = task._get_current_object()
    request.setdefault("id", "11111111-2222-3333-4444-555555555555")
    delivery = {"exchange": "", "routing_key": "somewhere", "priority": 3}
    task.push_request(args=list(args), kwargs={}, delivery_info=delivery, **request)
    try:
        yield task
    finally:
        task.pop_request()


def test_a_message_becomes_a_job() -> None:
    """With its id, arguments, queue, priority and headers, for a later retry."""
    with arriving(keyed, "a", headers={"tenant": "x"}, root_id="root") as task:
        job_id = adopt(task, "default")
    (job,) = jobs()
    assert (job.pk, job.key, job.lane) == (job_id, "keyed:a", "somewhere")
    assert str(job.public_id) == "11111111-2222-3333-4444-555555555555"
    headers = headers_of(job)
    assert (headers["tenant"], headers["root_id"]) == ("x", "root")
    assert envelope_of(job).properties["priority"] == 3


@pytest.mark.parametrize("task", [keyed, unkeyed])
def test_the_same_message_again_is_the_same_job(task: Any) -> None:
    """A redelivery finds the row, by key or by task id."""
    for _ in range(2):
        with arriving(task, "a") as arrived:
            adopt(arrived, "default")
    assert counts() == (1, 1)


def test_a_tick_of_beat_is_adopted_under_its_name() -> None:
    """A beat that does not know the task sends by name; two such messages are one job's."""
    ids = ("11111111-2222-3333-4444-555555555555", "11111111-2222-3333-4444-666666666666")
    for task_id in ids:
        with arriving(unkeyed, headers={"guard_tick": "nightly@7"}, id=task_id) as task:
            adopt(task, "default")
    assert {job.key for job in jobs() if job.survivor_id is None} == {"tick:nightly@7"}


def test_a_message_for_a_known_key_is_answered_by_its_job() -> None:
    """Whoever sent it waits for its own id: an echo of the job that has the key."""
    keyed.delay("a")
    with arriving(keyed, "a") as task:
        job_id = adopt(task, "default")
    echo = Job.objects.get(survivor__isnull=False)
    assert job_id == echo.survivor_id
    assert headers_of(echo)["id"] == "11111111-2222-3333-4444-555555555555"


@pytest.mark.parametrize(
    ("args", "error"), [((None,), MissingKey), (("a", 2), KeyConflict), ((), TypeError)]
)
def test_a_message_that_can_be_no_job_is_told_by_type(
    args: tuple[Any, ...], error: type[Exception]
) -> None:
    """Nothing is written for it."""
    keyed.delay("a", 1)
    with arriving(keyed, *args) as task, pytest.raises(error):
        adopt(task, "default")
    assert counts() == (1, 1)
