"""A message whose job is held."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from celery_guard.enqueue.steering import reading
from celery_guard.enqueue.steering.turning import turn_off, turn_on
from celery_guard.models import Attempt
from tests.project.shop.tasks import mark, mark_low
from tests.project.shop.witness import traces
from tests.run.delivery import job_of, receive, send, state_of
from tests.run.marks import on_database

pytestmark = [*on_database, pytest.mark.mariadb]


@pytest.fixture(autouse=True)
def _nothing_known() -> Iterator[None]:
    reading.forget()
    yield
    reading.forget()


@pytest.mark.bar
def test_a_held_job_is_not_claimed(scratch: object) -> None:
    """Its message is done with, the job waits until the switch ends, and nothing is used up."""
    job = job_of(mark.delay("held", "x"))
    message = send(job)
    switch = turn_on("default", action="hold", reason="r", author="me", seconds=600, task=mark.name)
    assert state_of(receive(message)) == "IGNORED"
    job.refresh_from_db()
    assert (job.state, job.reason, job.sent_at) == ("waiting", "paused", None)
    assert (job.due_at, job.starts, job.fence) == (switch.expires_at, 0, 0)
    assert not traces("held")
    assert not Attempt.objects.exists()
    turn_off("default", [switch.pk], by="me")
    assert state_of(receive(send(job))) == "SUCCESS"
    assert len(traces("held")) == 1


def test_another_task_is_claimed(scratch: object) -> None:
    """A hold on one task costs the others nothing."""
    job = job_of(mark_low.delay("free"))
    turn_on("default", action="hold", reason="r", author="me", seconds=600, task=mark.name)
    assert state_of(receive(send(job))) == "SUCCESS"


def test_an_adopted_message_is_held(scratch: object) -> None:
    """A message that came without a job becomes one, and waits like the others."""
    job = job_of(mark.delay("early", "x"))
    message = {name: value for name, value in send(job).items() if name != "guard_job"}
    job.delete()
    turn_on("default", action="hold", reason="r", author="me", seconds=600, lane="medium")
    assert state_of(receive(message)) == "IGNORED"
    adopted = type(job).objects.get()
    assert (adopted.state, adopted.reason, adopted.key) == ("waiting", "paused", "mark:early")
    assert not traces("early")
