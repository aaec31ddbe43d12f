"""Asking: one job in the caller's transaction, in the lane that queue or priority say."""

import datetime as dt
import functools
import subprocess
import sys
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.core.exceptions import ImproperlyConfigured, SynchronousOnlyOperation
from django.db import transaction
from django.utils import timezone

from celery_guard import KeyConflict, batch
from celery_guard.backends import guarded
from celery_guard.enqueue.task_framework import (
    InvalidTask,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultStatus,
    task_enqueued,
)
from tests.enqueue.rows import jobs
from tests.project.shop import django_tasks as tasks
from tests.project.shop.tasks import add

pytestmark = [pytest.mark.mariadb, pytest.mark.django_db(transaction=True)]


def test_a_task_is_a_job_of_the_callers_transaction() -> None:
    """Named by its function's path; the result's id is the job's public id."""
    with transaction.atomic():
        result = tasks.write.enqueue("a", value="b")
    (job,) = jobs()
    assert (job.task, job.lane, job.key) == (
        "tests.project.shop.django_tasks.write",
        "medium",
        None,
    )
    assert result.id == str(job.public_id)
    assert (result.status, result.args, result.kwargs) == (
        TaskResultStatus.READY,
        ["a"],
        {"value": "b"},
    )
    # The result is in the ledger, which is asked; no result backend keeps another.
    assert not job.awaited


def test_nothing_is_left_of_a_rollback() -> None:
    """Neither a job nor a result."""
    with transaction.atomic():
        result = tasks.write.enqueue("a")
        transaction.set_rollback(True)
    assert jobs() == []
    with pytest.raises(TaskResultDoesNotExist):
        tasks.write.get_result(result.id)


@pytest.mark.parametrize(
    ("asked", "lane"),
    [
        ({}, "medium"),
        ({"priority": 1}, "high"),
        ({"priority": -100}, "low"),
        ({"queue_name": "high"}, "high"),
        ({"queue_name": "emails"}, "low"),
    ],
)
def test_queue_or_priority_choose_the_lane(asked: dict[str, Any], lane: str) -> None:
    """A queue is a lane or stands for one; in the default queue the priority chooses."""
    task = tasks.write.using(**asked)
    result = task.enqueue("a")
    assert [job.lane for job in jobs()] == [lane]
    # What the call said is kept with it.
    found = tasks.write.get_result(result.id).task
    assert (found.priority, found.queue_name) == (task.priority, task.queue_name)


def test_a_priority_within_a_lane_is_refused() -> None:
    """It would be ignored there: jobs of a lane run in the order in which they are due."""
    with pytest.raises(InvalidTask, match="leave the priority out"):
        tasks.mail.using(priority=5)


def test_run_after_is_the_time_at_which_the_job_is_due() -> None:
    """An instant, kept in the row."""
    when = timezone.now() + dt.timedelta(hours=1)
    result = tasks.write.using(run_after=when).enqueue("a")
    assert [job.due_at for job in jobs()] == [when]
    assert tasks.write.get_result(result.id).task.run_after == when


def test_without_use_tz_a_time_is_the_sites(settings: Any) -> None:
    """Celery would take a naive time for UTC."""
    settings.USE_TZ, settings.TIME_ZONE = False, "Asia/Tokyo"
    tasks.write.using(run_after=dt.datetime.fromisoformat("2050-01-01T09:00")).enqueue("a")
    settings.USE_TZ = True
    assert [job.due_at for job in jobs()] == [dt.datetime(2050, 1, 1, tzinfo=dt.UTC)]


def test_a_key_makes_repeated_calls_one_job() -> None:
    """The second call gets the result of the first; other arguments are a conflict."""
    first, second = tasks.once.enqueue("a", 1), tasks.once.enqueue("a", value=1)
    assert first.id == second.id
    assert [job.key for job in jobs()] == ["once:a"]
    with pytest.raises(KeyConflict):
        tasks.once.enqueue("a", 2)


def test_in_a_batch_the_result_still_names_the_job_that_has_the_key() -> None:
    """A frozen result can't learn of it when the batch ends."""
    first = tasks.once.enqueue("a")
    with batch():
        second = tasks.once.enqueue("a")
    assert first.id == second.id


def test_a_coalesce_key_may_stand_below_the_decorator() -> None:
    """As below ``guarded_task``."""
    tasks.latest.enqueue("a")
    assert [job.coalesce_key for job in jobs()] == ["latest:a"]


def test_arguments_are_what_json_holds() -> None:
    """As the framework asks; what does not fit the function is refused at the call."""
    assert tasks.write.enqueue(("a",)).args == [["a"]]
    with pytest.raises(TypeError):
        tasks.write.enqueue(timezone.now())
    with pytest.raises(TypeError, match="unexpected"):
        tasks.write.enqueue("a", other=1)
    with pytest.raises(TypeError):
        tasks.told.enqueue("a", "one too many: the context is not an argument")
    assert len(jobs()) == 1


def test_an_async_view_asks_through_aenqueue() -> None:
    """It is captured as in a view; the other way is refused, as Django refuses queries there."""

    async def asks() -> Any:
        with pytest.raises(SynchronousOnlyOperation, match="aenqueue"):
            tasks.write.enqueue("a")
        result = await tasks.write.aenqueue("b")
        return await tasks.write.aget_result(result.id)

    assert async_to_sync(asks)().args == ["b"]
    assert len(jobs()) == 1


def test_djangos_signal_is_sent_for_every_new_job() -> None:
    """Not for a call that finds its key taken."""
    heard: list[str] = []

    def hear(sender: Any, task_result: TaskResult, **_: Any) -> None:
        heard.append(task_result.id)

    task_enqueued.connect(hear)
    try:
        result = tasks.once.enqueue("a")
        tasks.once.enqueue("a")
    finally:
        task_enqueued.disconnect(hear)
    assert heard == [result.id]


@pytest.mark.parametrize("result_id", ["nothing", "0b8d6d0e-7a51-4f0e-9c52-6a4a5e0f9a11"])
def test_an_unknown_result_does_not_exist(result_id: str) -> None:
    """Whatever its id looks like."""
    with pytest.raises(TaskResultDoesNotExist):
        tasks.write.get_result(result_id)


def test_a_job_that_is_no_django_task_has_no_result() -> None:
    """A guarded Celery task is asked by its handle."""
    with pytest.raises(TaskResultDoesNotExist, match="no Django task"):
        tasks.write.get_backend().get_result(str(add.delay(1, 2).public_id))


def test_a_purged_result_does_not_exist() -> None:
    """A tombstone knows neither arguments nor return value: half a result would be a wrong one."""
    result = tasks.once.enqueue("a")
    (job,) = jobs()
    job.message = None
    job.save()
    with pytest.raises(TaskResultDoesNotExist, match="purged"):
        tasks.once.get_result(result.id)


def test_the_lane_is_not_the_guards_to_say() -> None:
    """Two places for one fact would disagree."""
    with pytest.raises(ImproperlyConfigured, match="queue_name"):
        guarded(lane="high")(functools.partial)


def test_without_the_framework_the_import_says_where_it_comes_from() -> None:
    """Django before 6.0, without the package."""
    code = (
        "import sys; sys.modules['django.tasks'] = sys.modules['django_tasks'] = None\n"
        "import celery_guard.enqueue.task_framework"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert told.stderr.splitlines()[-1].startswith("ImportError: celery_guard.backends is for")
