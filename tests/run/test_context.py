"""A job runs in the context in which it was asked for, where the site says so, and leaves none."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from celery import chain, chord
from django.utils import translation

from celery_guard.context import carry, carry_language, carry_nothing, carry_variable
from celery_guard.models import Job
from celery_guard.testing import drain
from tests.enqueue.rows import headers_of, jobs
from tests.project.shop.witness import traces
from tests.run import context_tasks as tasks
from tests.run.context_tasks import request_id, speaks

pytestmark = [
    pytest.mark.usefixtures("scratch"),
    pytest.mark.django_db(transaction=True),
]


@pytest.fixture
def carried() -> Iterator[None]:
    """Language, a context variable, and structlog's context as the guide has it."""
    carry_language()
    carry_variable("request", request_id)
    carry(
        "log",
        read=structlog.contextvars.get_contextvars,
        enter=lambda bound: structlog.contextvars.bound_contextvars(**bound),
    )
    yield
    carry_nothing()


@contextlib.contextmanager
def request(language: str, name: str) -> Iterator[None]:
    """What a web request has in force."""
    token = request_id.set(name)
    with translation.override(language), structlog.contextvars.bound_contextvars(order="7"):
        yield
    request_id.reset(token)


def run_all() -> None:
    """Everything, later attempts too."""
    drain(later=True)


@pytest.mark.usefixtures("carried")
def test_a_body_has_its_callers_context_and_leaves_none() -> None:
    """Two requests, one worker: each job speaks its own language, and after them nothing is left."""
    before = speaks()
    with request("de", "r1"):
        tasks.says.delay("a")
    with request("fr", "r2"):
        tasks.says.delay("b")
    tasks.says.delay("c")
    run_all()
    assert [traces(name) for name in "abc"] == [["de r1 7"], ["fr r2 7"], [before]]
    assert speaks() == before


@pytest.mark.usefixtures("carried")
@pytest.mark.parametrize("task", [tasks.says_twice, tasks.says_again])
def test_it_outlives_attempts(task: Any) -> None:
    """After a transient failure, and with other arguments."""
    with request("de", "r1"):
        task.delay("a")
    run_all()
    assert traces("a") == ["de r1 7"] * 2


@pytest.mark.usefixtures("carried")
def test_it_goes_on_to_what_a_job_asks_for() -> None:
    """A call in the body, the next step of a chain, the members of a frozen chord and its body."""
    with request("de", "r1"):
        chain(tasks.says_then_asks.si("a"), tasks.says.si("b")).delay()
        chord([tasks.says.si("c")], tasks.says.si("d")).delay()
    run_all()
    for name in ("a", "a-next", "b", "c", "d"):
        assert traces(name) == ["de r1 7"], name


@pytest.mark.usefixtures("carried")
def test_what_can_not_be_entered_is_the_bodys_failure() -> None:
    """The job ends, and no half of the context stays."""

    def broken(value: Any) -> Any:
        raise LookupError(value)

    carry("broken", read=lambda: "x", enter=broken)
    before = speaks()
    with request("de", "r1"):
        tasks.says.delay("a")
    run_all()
    assert [job.state for job in Job.objects.all()] == ["failed"]
    assert speaks() == before


def test_nothing_travels_unless_asked_for(scratch: Path) -> None:
    """No header, no context."""
    with request("de", "r1"):
        tasks.says.delay("a")
    (job,) = jobs()
    assert "guard_context" not in headers_of(job)
    run_all()
    assert traces("a") == ["en-us - -"]
