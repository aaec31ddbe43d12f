"""Retries are a bounded part of what begins; past it they wait longer, and nothing fails for it."""

import threading
from pathlib import Path
from typing import Any

import pytest
from django.db import connections, transaction
from django.db.models import F

from celery_guard.events import Event
from celery_guard.jobs.clock import DatabaseNow
from celery_guard.models import Attempt, Job, RetryWindow
from celery_guard.run import retry_window
from celery_guard.watch.counters import series_tally
from tests.project.shop.models import Mark
from tests.run.delivery import deliver, job_of, state_of
from tests.run.limited import answers, calls
from tests.run.marks import on_database
from tests.run.tasks import asks, asks_quietly, echo

pytestmark = [pytest.mark.mariadb, *on_database]

TASK = f"task:{asks.name}"


@pytest.fixture(autouse=True)
def _budget(settings: Any) -> None:
    _set(settings, retry_least=2, backoff_cap=3600)
    retry_window.starts.forget()


def _set(settings: Any, **run: Any) -> None:
    settings.CELERY_GUARD = {
        **settings.CELERY_GUARD,
        "run": {**settings.CELERY_GUARD["run"], **run},
    }


def _retried(name: str, **options: Any) -> Job:
    job = job_of(asks.delay(name, options or {"countdown": 100}))
    assert state_of(deliver(job)) == "RETRY"
    job.refresh_from_db()
    return job


def _waits(job: Job) -> float:
    due, now = Job.objects.filter(pk=job.pk).values_list("due_at", DatabaseNow()).get()
    assert due is not None
    return float((due - now).total_seconds())


def _began(resource: str, count: int) -> None:
    for _ in range(count):
        retry_window.starts.count("default", resource)
    series_tally.flush()


def test_retries_past_the_budget_wait_four_times_as_long(scratch: Path, heard: list[Event]) -> None:
    """Two may be tried again at their own pace; the others later, with one failure, and not failed."""
    jobs = [_retried(f"j{n}") for n in range(4)]
    assert [job.reason for job in jobs] == ["retry", "retry", "retry_budget", "retry_budget"]
    assert [round(_waits(job) + 30, -2) for job in jobs] == [100, 100, 400, 400]
    assert {(job.state, job.failures) for job in jobs} == {("waiting", 1)}
    told = Attempt.objects.order_by("pk").values_list("outcome", "reason")
    assert list(told) == [("retry", job.reason) for job in jobs]
    said = [event.facts["retries"] for event in heard if event.name == "run.retry_put_off"]
    assert said == [3, 4]


def test_the_budget_is_a_share_of_what_began(scratch: Path) -> None:
    """A tenth of the starts of the last minute, those of every process, the retries' own among them."""
    _began(TASK, 28)
    assert [_retried(f"j{n}").reason for n in range(5)] == ["retry"] * 3 + ["retry_budget"] * 2
    _began(TASK, 30)
    assert _retried("later").reason == "retry", "six of sixty-four"


def test_what_is_over_a_minute_old_does_not_count(scratch: Path) -> None:
    """Neither retries nor starts, nor what was counted under a clock that was ahead."""
    for past in (True, False):
        _began(TASK, 40)
        assert [_retried(f"{past}{n}").reason for n in range(5)] == ["retry"] * 4 + ["retry_budget"]
        step = -retry_window.BUCKETS if past else 1000 * retry_window.SLOTS
        RetryWindow.objects.update(bucket=F("bucket") + step)
    assert [_retried(f"again{n}").reason for n in range(3)] == ["retry"] * 2 + ["retry_budget"]


def test_the_jobs_of_a_dependency_share_its_budget(scratch: Path, settings: Any) -> None:
    """Whatever task they are of; a task without one has its own."""
    _began("dependency:provider", 30)
    jobs = [job_of(answers.delay(f"j{n}", "down")) for n in range(4)]
    for job in jobs:
        deliver(job)
        job.refresh_from_db()
    assert [job.reason for job in jobs] == ["retry"] * 3 + ["retry_budget"]
    assert _retried("own").reason == "retry"
    deliver(job_of(calls.delay("x")))
    series_tally.flush()
    assert retry_window.add_retry("default", "dependency:provider").starts == 35


def test_a_time_that_was_named_stays(scratch: Path) -> None:
    """An eta means that time, and a longer wait than the cap is not cut to it."""
    for n in range(2):
        _retried(f"j{n}")
    assert _retried("eta", eta=100).reason == "retry"
    assert _waits(_retried("long", countdown=5000)) > 4000


def test_no_wait_is_the_back_off_at_least(scratch: Path, settings: Any) -> None:
    """Four times nothing would be no brake."""
    _set(settings, backoff_base=50)
    for n in range(2):
        _retried(f"j{n}")
    assert 20 < _waits(_retried("at-once", countdown=0)) <= 50


def test_a_body_that_returns_has_the_same_budget(scratch: Path) -> None:
    """`throw=False`: counted even inside the body's transaction, which commits what it wrote."""
    jobs = [job_of(asks_quietly.delay(f"j{n}")) for n in range(3)]
    for job in jobs:
        deliver(job)
        job.refresh_from_db()
    assert [job.reason for job in jobs] == ["retry", "retry", "retry_budget"]
    assert Mark.objects.count() == 3


def test_a_retry_is_counted_for_good() -> None:
    """Whatever becomes of the transaction around it."""
    with transaction.atomic():
        retry_window.add_retry("default", "task:x")
        transaction.set_rollback(True)
    assert retry_window.add_retry("default", "task:x").retries == 2


def test_zero_switches_it_off(scratch: Path, settings: Any) -> None:
    """Nothing is counted, and nothing waits longer."""
    _set(settings, retry_share=0)
    assert {_retried(f"j{n}").reason for n in range(4)} == {"retry"}
    series_tally.flush()
    assert not RetryWindow.objects.exists()


def test_many_at_once_do_not_pass_the_budget() -> None:
    """Of forty that come at one moment each sees another number: no two see the same room."""
    gate, seen = threading.Barrier(8), []

    def work() -> None:
        try:
            gate.wait(30)
            seen.extend(retry_window.add_retry("default", "task:x").retries for _ in range(5))
        finally:
            connections.close_all()

    workers = [threading.Thread(target=work) for _ in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert len(seen) == 40
    assert max(seen) == 40
    assert all(sum(number <= room for number in seen) <= room for room in range(1, 41))


def test_the_way_to_success_costs_no_statement(
    scratch: Path, django_assert_num_queries: Any
) -> None:
    """A start is counted in memory, and told with the other counts of its process."""
    deliver(job_of(echo.delay(1)))
    assert not RetryWindow.objects.exists()
    with django_assert_num_queries(1):
        retry_window.starts.tell("default")
    row = RetryWindow.objects.get()
    assert (row.resource, row.starts, row.retries) == (f"task:{echo.name}", 1, 0)


def test_what_could_not_be_told_is_told_later(heard: list[Event]) -> None:
    """A table that does not take them keeps no start from counting."""
    retry_window.starts.count("default", "task:x")
    with connections["default"].schema_editor() as editor:
        editor.alter_db_table(RetryWindow, "celery_guard_retrywindow", "elsewhere")
    try:
        series_tally.flush()
    finally:
        with connections["default"].schema_editor() as editor:
            editor.alter_db_table(RetryWindow, "elsewhere", "celery_guard_retrywindow")
    assert "watch.counts_kept" in [event.name for event in heard]
    series_tally.flush()
    assert RetryWindow.objects.get().starts == 1
