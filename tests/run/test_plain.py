"""What a worker does with a message that has no job, by the mode of its task."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from celery import current_app
from django.db import connection

from celery_guard import UNKEYED, current_job, dependency, guarded_task
from celery_guard.conf import Mode
from celery_guard.context import carry_language, carry_nothing
from celery_guard.enqueue.adopt import adopt
from celery_guard.enqueue.context import HEADER
from celery_guard.enqueue.rollout import reading
from celery_guard.errors import NoCurrentJob
from celery_guard.models import Effect, Job
from tests.enqueue.rollout.stages import set_to
from tests.project.shop.models import Mark, Payment
from tests.project.shop.tasks import mark
from tests.project.shop.witness import traces
from tests.run.context_tasks import says
from tests.run.delivery import job_of, message_of, receive, send, state_of
from tests.run.marks import on_database
from tests.run.sessions import session
from tests.run.tasks import ACTIONS, in_body

pytestmark = [*on_database, pytest.mark.mariadb]

calls: list[str] = []
SETTING = {"postgresql": "statement_timeout = 60000", "mysql": "@tenant = 7"}


@guarded_task(key="pay:{name}", atomic=False)
def pay(name: str) -> str:
    """An effect, then business writes with the finish."""
    job = current_job()
    job.checkpoint()
    answer = job.effect("pay", lambda sending: calls.append(sending.key) or {"id": "r1"})
    job.progress(1, 2)
    with job.finish():
        Payment.objects.create(order_id=1, reference=answer.id)
    return job.provider_key("pay")


@guarded_task(key=UNKEYED, bind=True, max_retries=3)
def tries(self: Any, name: str) -> int:
    """Asks once to be tried again."""
    if not self.request.retries:
        raise self.retry(countdown=0)
    return int(self.request.retries)


@guarded_task(key="within:{name}")
def within(name: str) -> None:
    """Calls another task as a function, and a dependency."""
    with dependency("desk"):
        inner(name)


@guarded_task(key="inner:{name}")
def inner(name: str) -> None:
    """Has no job of its own."""
    with pytest.raises(NoCurrentJob):
        current_job()
    Mark.objects.create(name=name)


@pytest.fixture(autouse=True)
def _nothing_known() -> Iterator[None]:
    reading.forget()
    calls.clear()
    yield
    reading.forget()


def arriving(task: Any, *args: Any, task_id: str = "7c0e8a4e-0000-4000-8000-000000000001") -> Any:
    """A message without a job, as a worker gets it from a plain publisher."""
    return {
        "task": task.name,
        "id": task_id,
        "args": list(args),
        "kwargs": {},
        "hostname": "here",
        "delivery_info": {"exchange": "", "routing_key": task.lane_queue()},
        "correlation_id": task_id,
    }


@pytest.mark.parametrize("mode", ["off", "compare"])
def test_it_runs_plainly(scratch: object, mode: str) -> None:
    """The body runs and Celery gets its result; the ledger knows nothing of it."""
    set_to(mark, mode)
    answer = receive(arriving(mark, "a", "1"))
    assert (state_of(answer), answer.retval) == ("SUCCESS", "1")
    assert Mark.objects.get().name == "a"
    assert not Job.objects.exists()


def test_it_leaves_the_next_job_no_session(scratch: object) -> None:
    """Its connection is kept, as around a job; what it set is not."""
    set_to(in_body, "off")
    ACTIONS["a"] = lambda: connection.cursor().execute("SET " + SETTING[connection.vendor])
    before = session()
    assert state_of(receive(arriving(in_body, "a"))) == "SUCCESS"
    assert session() != before


def test_it_has_its_callers_context(scratch: object) -> None:
    """What the message took along is in force for a plain body too."""
    set_to(says, "off")
    carry_language()
    try:
        receive({**arriving(says, "a"), HEADER: {"language": "de"}})
    finally:
        carry_nothing()
    assert traces("a") == ["de - -"]


def test_on_adopts_it(scratch: object) -> None:
    """As ever, and the stamp is that of the mode now."""
    set_to(mark, "canary:100")
    receive(arriving(mark, "a", "1"))
    assert Job.objects.get().mode == "canary"
    assert Job.objects.get().state == "succeeded"


def test_canary_goes_by_the_key(scratch: object) -> None:
    """The same draw as at the publisher: selected ones become jobs, the others run plainly."""
    set_to(mark, "canary:40")
    names = [f"n{n}" for n in range(25)]
    for n, name in enumerate(names):
        receive(arriving(mark, name, "1", task_id=f"7c0e8a4e-0000-4000-8000-{n:012}"))
    assert Mark.objects.count() == 25
    adopted = {key.removeprefix("mark:") for key in Job.objects.values_list("key", flat=True)}
    assert 0 < len(adopted) < 25


def test_a_message_with_a_job_is_claimed_whatever_the_mode(scratch: object) -> None:
    """The stamp decides: once under the ledger, always under it."""
    job = job_of(mark.delay("a", "1"))
    message = send(job)
    set_to(mark, "off")
    assert receive(message).retval == "1"
    job.refresh_from_db()
    assert job.state == "succeeded"
    receive(message_of(job))
    assert Mark.objects.count() == 1, "a copy is answered from the ledger"


def test_a_message_adopted_before_is_claimed_too(scratch: object) -> None:
    """It was adopted and delivered again, and the mode has been changed meanwhile: one job, one run."""
    message = arriving(mark, "a", "1")
    task = current_app.tasks[mark.name]
    task.push_request(**message)
    adopt(task, "default", Mode.ON)  # type: ignore[arg-type]
    task.pop_request()
    set_to(mark, "off")
    receive(message)
    assert Job.objects.get().state == "succeeded"
    receive(message)
    assert Mark.objects.count() == 1


def test_a_body_made_for_the_guard_runs_too() -> None:
    """Its effect is called with the key that a job's would have; nothing of it is kept."""
    set_to(pay, "off")
    answer = receive(arriving(pay, "a"))
    assert state_of(answer) == "SUCCESS"
    assert Payment.objects.get().reference == "r1"
    assert calls == [answer.retval]
    assert not Effect.objects.exists()
    reading.forget()
    set_to(pay, "on")
    again = receive(arriving(pay, "a", task_id="7c0e8a4e-0000-4000-8000-000000000002"))
    assert again.retval == answer.retval


def test_a_retry_is_celerys_own(redis_client: Any) -> None:
    """Published again by Celery under the same id, and counted by it."""
    set_to(tries, "off")
    assert state_of(receive(arriving(tries, "a"))) == "RETRY"
    assert not Job.objects.exists()
    assert redis_client.llen(tries.lane_queue()) == 1
    assert receive({**arriving(tries, "a"), "retries": 1}).retval == 1
    assert not Job.objects.exists()


def test_what_it_calls_has_no_job_either() -> None:
    """A task called as a function sees none; a dependency is waited for in place."""
    set_to(within, "off")
    assert state_of(receive(arriving(within, "a"))) == "SUCCESS"
    assert Mark.objects.get().name == "a"


def test_an_eager_site_runs_plainly(scratch: object) -> None:
    """`task_always_eager` under off is the body and no row."""
    set_to(mark, "off")
    current_app.conf.task_always_eager = True
    try:
        assert mark.delay("a", "1").get() == "1"
    finally:
        current_app.conf.task_always_eager = False
    assert not Job.objects.exists()
