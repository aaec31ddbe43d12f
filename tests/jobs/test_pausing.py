"""Held jobs: put aside by release and worker, and brought back."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from celery_guard.enqueue.steering import reading
from celery_guard.enqueue.steering.models import Switch
from celery_guard.enqueue.steering.turning import turn_off, turn_on
from celery_guard.jobs.named import NamedJob
from celery_guard.jobs.pausing import Switched, bring_back, step_aside, until
from celery_guard.jobs.release import release
from celery_guard.models import Job, LaneLead
from tests.factories import make_job
from tests.relay.ledger import lead

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.mariadb]


@pytest.fixture(autouse=True)
def _nothing_known() -> Iterator[None]:
    yield
    reading.forget()


def pause(seconds: float = 600, **scope: str) -> Switch:
    """A hold, from now."""
    return turn_on("default", action="hold", reason="a test", author="me", seconds=seconds, **scope)


def send(batch: int = 100, window: int | None = None, **options: Any) -> list[int]:
    """What one release of the lane ``high`` sends."""
    LaneLead.objects.filter(lane="high").delete()
    sent = release("default", lead("high"), batch, window, steered=True, **options)
    return [sending.id for sending in sent]


def test_empty_words_match_any() -> None:
    """Every word that a switch names must fit; those it leaves empty always do."""
    now = timezone.now()
    later = now + dt.timedelta(hours=1)
    one = Switched(id=1, lane="high", task="", tenant="a", until=now)
    two = Switched(id=2, lane="", task="t", tenant="", until=later)
    assert until([one], "high", "x", "a") == now
    assert until([one], "high", "x", "b") is None
    assert until([one], "low", "x", "a") is None
    assert until([one, two], "high", "t", "a") == later
    assert not one.closes("high")


@pytest.mark.parametrize("window", [None, 1])
def test_held_jobs_never_block_the_head(window: int | None) -> None:
    """1,200 held jobs before one free job: one release passes them, and never meets them again."""
    switch = pause(task="shop.slow")
    for _ in range(1200):
        make_job(task="shop.slow")
    free = make_job()
    assert send(1, window) == [free.pk]
    aside = Job.objects.filter(task="shop.slow")
    assert set(aside.values_list("due_at", "sent_at", "reason")) == {
        (switch.expires_at, None, "paused")
    }
    Job.objects.filter(pk=free.pk).delete()
    LaneLead.objects.all().delete()
    mine = lead()
    with CaptureQueriesContext(connection) as asked:
        assert release("default", mine, 1, window, steered=True) == []
    assert not [query for query in asked.captured_queries if query["sql"].startswith("UPDATE")]


def test_a_closed_lane_is_left_alone() -> None:
    """A hold on a whole lane writes nothing: its jobs stay due, in their order."""
    jobs = [make_job(), make_job()]
    switch = pause(lane="high")
    assert send() == []
    assert [Job.objects.get(pk=job.pk).due_at for job in jobs] == [job.due_at for job in jobs]
    turn_off("default", [switch.pk], by="me")
    assert send() == [job.pk for job in jobs]


def test_held_tenants_are_passed_in_their_turns() -> None:
    """Where tenants take turns, a held tenant's jobs go aside and the others keep their shares."""
    pause(tenant="a")
    for _ in range(5):
        make_job(tenant="a")
    mine = [make_job(tenant="b") for _ in range(3)]
    assert send(shares={"a": 2, "b": 2}) == [job.pk for job in mine[:2]]
    assert set(Job.objects.filter(tenant="a").values_list("reason", flat=True)) == {"paused"}


def test_a_sent_job_steps_aside() -> None:
    """A message that arrives while its job is held: back to waiting, and nothing is used up."""
    job = make_job(sent_at=timezone.now(), sends=1)
    switch = pause(task=job.task)
    assert step_aside("default", NamedJob(job.pk, job.public_id)) == switch.expires_at
    job.refresh_from_db()
    assert (job.state, job.reason, job.sent_at, job.sends) == ("waiting", "paused", None, 0)
    assert (job.starts, job.failures, job.fence) == (0, 0, 0)
    assert job.due_at == switch.expires_at


def test_a_stale_message_moves_no_due_time() -> None:
    """A job that waits for its retry keeps its time, whatever copies of messages arrive."""
    job = make_job(due_in=50)
    pause()
    assert step_aside("default", NamedJob(job.pk, job.public_id)) is None
    assert Job.objects.get(pk=job.pk).due_at == job.due_at


def test_nobody_puts_aside_under_an_ended_switch() -> None:
    """What is in force is asked anew under a lock, whatever this process last read."""
    job = make_job(sent_at=timezone.now(), sends=1)
    switch = pause()
    turn_off("default", [switch.pk], by="me")
    assert step_aside("default", NamedJob(job.pk, job.public_id)) is None
    assert Job.objects.get(pk=job.pk).sent_at is not None


def test_the_longest_of_two_holds_counts() -> None:
    """Two switches at once: a job waits for the later, and comes back when both are over."""
    job = make_job()
    short, long = pause(60, task=job.task), pause(600, lane="high", task=job.task)
    assert send() == []
    turn_off("default", [long.pk], by="me")
    assert bring_back("default", "high", [long.expires_at]) == (1, False)
    assert send() == []
    turn_off("default", [short.pk], by="me")
    bring_back("default", "high", [short.expires_at])
    assert send() == [job.pk]


def test_a_question_stays_a_question() -> None:
    """A job that asks after an outside call is held too, and still is known as that afterwards."""
    job = make_job(reason="uncertain", starts=1)
    switch = pause(task=job.task)
    assert send() == []
    turn_off("default", [switch.pk], by="me")
    assert bring_back("default", "high", [switch.expires_at]) == (1, False)
    assert Job.objects.get(pk=job.pk).reason == "uncertain"
    assert send() == [job.pk]


def test_a_follower_inherits_no_pause() -> None:
    """A newer request folds with one that was put aside, and isn't put off by the old switch."""
    old = make_job(coalesce_key="k")
    switch = pause(task=old.task)
    assert send() == []
    turn_off("default", [switch.pk], by="me")
    new = make_job(coalesce_key="k")
    assert send() == [new.pk]
    assert Job.objects.get(pk=old.pk).state == "superseded"
