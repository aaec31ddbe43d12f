"""A real worker runs Django tasks, and their results tell how they stand."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from celery_guard.enqueue.task_framework import TaskResult, TaskResultStatus, task_finished
from celery_guard.jobs import cancelling
from celery_guard.testing import drain
from tests.enqueue.rows import jobs
from tests.kit.processes import Processes
from tests.kit.wait import wait_for
from tests.project.shop import django_tasks as tasks
from tests.project.shop.models import Mark
from tests.project.shop.witness import traces

pytestmark = pytest.mark.django_db(transaction=True)


def finished(result: Any) -> Any:
    """The result once it is."""

    def look() -> Any:
        result.refresh()
        return result.is_finished and result

    return wait_for(look, timeout=30, what=f"{result.task.name} to end")


def test_a_worker_runs_them(processes: Processes) -> None:
    """Functions and coroutines, with context, with failures: the results say what happened."""
    processes.worker()
    asked = {
        "write": tasks.write.enqueue("a", value="b"),
        "mail": tasks.mail.enqueue("c"),
        "told": tasks.told.using(priority=3).enqueue(name="d"),
        "awaited": tasks.awaited.enqueue("e"),
        "flaky": tasks.flaky.enqueue("f", 2),
    }
    ended = {name: finished(result) for name, result in asked.items()}
    values = {name: result.return_value for name, result in ended.items()}
    assert values == {
        "write": "b",
        "mail": "low",
        "told": [asked["told"].id, 1, 3, [], {"name": "d"}],
        "awaited": "e 1",
        "flaky": 3,
    }
    flaky = ended["flaky"]
    assert [error.exception_class for error in flaky.errors] == [ConnectionError, ConnectionError]
    assert flaky.attempts == 3
    assert flaky.enqueued_at <= flaky.started_at <= flaky.last_attempted_at <= flaky.finished_at
    # Its first two attempts were undone.
    assert Mark.objects.filter(name="f").count() == 1


def test_failures_are_told(processes: Processes) -> None:
    """With the class of the exception; what the body wrote is undone, also by a coroutine."""
    processes.worker()
    broken, awaited = tasks.broken.enqueue("a"), tasks.awaited_and_broken.enqueue("b")
    for result in (finished(broken), finished(awaited)):
        assert result.status == TaskResultStatus.FAILED
        (error,) = result.errors
        assert error.exception_class is ZeroDivisionError
        with pytest.raises(ValueError, match="failed"):
            result.return_value  # noqa: B018
    assert Mark.objects.count() == 0


@pytest.fixture
def heard() -> Iterator[list[tuple[Any, ...]]]:
    """What the signal of the end says."""
    told: list[tuple[Any, ...]] = []

    def hear(sender: Any, task_result: TaskResult, **_: Any) -> None:
        told.append((task_result.id, task_result.status, len(task_result.errors)))

    task_finished.connect(hear)
    yield told
    task_finished.disconnect(hear)


def test_the_end_is_heard_once(scratch: Path, heard: list[tuple[Any, ...]]) -> None:
    """After the job's end, not after an attempt that is tried again."""
    flaky, broken = tasks.flaky.enqueue("a", 0), tasks.broken.enqueue("b")
    drain()
    assert heard == [
        (flaky.id, TaskResultStatus.SUCCESSFUL, 0),
        (broken.id, TaskResultStatus.FAILED, 1),
    ]
    again = tasks.flaky.enqueue("c", 1)
    drain(later=True)
    assert traces("c") == ["", ""]
    assert heard[2:] == [(again.id, TaskResultStatus.SUCCESSFUL, 0)]


def test_a_cancelled_job_is_a_failed_task(scratch: Path) -> None:
    """The framework knows no cancelling; the error tells."""
    result = tasks.write.enqueue("a")
    (job,) = jobs()
    cancelling.ask("default", job.public_id)
    result.refresh()
    assert result.status == TaskResultStatus.FAILED
    assert [error.exception_class.__name__ for error in result.errors] == ["JobCancelled"]


def test_a_folded_request_tells_of_the_run_that_answers_it(processes: Processes) -> None:
    """A coalesce key: two results, one run."""
    first, second = tasks.latest.enqueue("a"), tasks.latest.enqueue("a")
    processes.worker()
    assert [finished(one).status for one in (first, second)] == [TaskResultStatus.SUCCESSFUL] * 2
    assert first.id != second.id
    assert traces("a") == [""]
