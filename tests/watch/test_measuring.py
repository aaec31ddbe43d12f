"""What one lane holds: each job counted once, ages by the first due time, every count bounded."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from celery_guard.jobs.clock import database_time
from celery_guard.jobs.states import State
from celery_guard.models import Job
from celery_guard.relay.reserve import Bound
from celery_guard.watch import measuring
from celery_guard.watch.measuring import Measured, measure
from tests.factories import make_job
from tests.watch.rows import aged, ended, retrying, running, sent

pytestmark = [pytest.mark.django_db, pytest.mark.mariadb]


def measured(window: int | None = None) -> Measured:
    return measure("default", "high", window, database_time("default"))


def test_every_job_is_counted_in_exactly_one_state() -> None:
    """Ready, scheduled, running and retrying are disjoint; ended jobs and other lanes are none."""
    make_job("high")
    sent("high")
    make_job("high", due_in=60)
    running("high")
    retrying("high")
    ended("high")
    make_job("low")
    found = measured()
    assert (found.ready, found.scheduled, found.running, found.retrying) == (2, 1, 1, 1)
    assert found.sent == 1
    assert found.available == 4
    assert not found.capped


def test_an_empty_lane_reads_zero_and_has_no_age() -> None:
    """Nothing waits: no oldest job, nothing pending."""
    found = measured()
    assert (found.ready, found.scheduled, found.running, found.retrying) == (0, 0, 0, 0)
    assert found.oldest_due_at is None
    assert found.stuck_since is None


def test_the_age_counts_from_the_first_due_time() -> None:
    """A job that a limit or an outage holds back never looks young, nor like a scheduled one."""
    old = aged("high", seconds=500)
    later = timezone.now() + timedelta(seconds=30)
    Job.objects.filter(pk=old.pk).update(due_at=later, reason="outage")
    aged("high", seconds=20)
    found = measured()
    assert found.oldest_due_at == old.first_due_at
    assert (found.ready, found.scheduled) == (2, 0)


@pytest.mark.parametrize("place", [running, retrying, ended])
def test_a_job_that_has_started_makes_no_lane_old(place: object) -> None:
    """The objective is about the first start; running, retried and ended jobs do not count."""
    place("high", first_due_at=timezone.now() - timedelta(seconds=900))  # type: ignore[operator]
    assert measured().oldest_due_at is None


def test_a_job_that_waits_for_an_answer_holds_no_slot() -> None:
    """Its attempt is over, so it does not run; the broker's window still counts it."""
    running("high")
    running("high", state=State.RECONCILING)
    aged("high", seconds=10)
    found = measured(window=2)
    assert (found.running, found.retrying, found.available, found.pending) == (1, 1, 3, 0)


def test_a_sent_job_that_nobody_starts_ages() -> None:
    """The broker's queue is part of the wait."""
    job = sent("high", first_due_at=timezone.now() - timedelta(seconds=300))
    assert measured().oldest_due_at == job.first_due_at


def test_what_the_window_holds_back_is_not_pending() -> None:
    """With a full window the relay has nothing it could send, however long the line is."""
    for _ in range(3):
        aged("high", seconds=300)
    sent("high", ago=100)
    sent("high", ago=90)
    full = measured(window=2)
    assert (full.pending, full.stuck_since) == (0, None)
    assert measured(window=3).pending == 1
    assert measured(window=None).pending == 3


def test_long_jobs_past_their_bound_are_not_pending() -> None:
    """They are left in the line for small ones; the relay is not stuck for that."""
    for _ in range(3):
        aged("high", seconds=300)
    now = database_time("default")
    full, some = Bound(longs=0, tasks=frozenset({"mail"})), Bound(longs=2, tasks=frozenset())
    held_back = measure("default", "high", None, now, full)
    assert (held_back.pending, held_back.stuck_since) == (0, None)
    assert measure("default", "high", None, now, some).pending == 2
    small = aged("high", seconds=60, task="mail")
    found = measure("default", "high", None, now, full)
    assert (found.pending, found.stuck_since) == (1, small.due_at)


def test_a_relay_that_sends_is_not_stuck() -> None:
    """Stuck since: the last sending, or the first due time where nothing was sent since."""
    due = aged("high", seconds=300)
    assert measured().stuck_since == due.due_at
    moving = sent("high", ago=1)
    assert measured().stuck_since == moving.sent_at


def test_counts_stop_at_their_bounds_and_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """A longer line costs no more, and reads as "at least"."""
    monkeypatch.setattr(measuring, "COUNT_MOST", 3)
    for _ in range(4):
        make_job("high")
    found = measured()
    assert found.ready == 3
    assert found.capped


def test_many_rows_that_must_be_read_stop_the_count_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scheduled and in-flight jobs have a bound of their own."""
    monkeypatch.setattr(measuring, "ROWS_MOST", 2)
    for _ in range(3):
        make_job("high", due_in=60)
    found = measured()
    assert found.scheduled == 2
    assert found.capped


def test_every_query_is_bounded() -> None:
    """No count without a LIMIT, no DISTINCT, few queries."""
    make_job("high")
    with CaptureQueriesContext(
        connection,
    ) as captured:
        measured()
    assert len(captured) <= 6
    for query in captured.captured_queries:
        sql = query["sql"].upper()
        assert "DISTINCT" not in sql
        assert "COUNT(" not in sql or "LIMIT" in sql
