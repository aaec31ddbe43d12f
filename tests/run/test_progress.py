"""What a running body tells of its progress, and the places where it may be stopped."""

from __future__ import annotations

import dataclasses
import logging
import threading
import uuid
from pathlib import Path

import pytest
from django.db import connections, transaction

from celery_guard import current_job
from celery_guard.errors import Cancelled, EffectInTransaction, LeaseLost
from celery_guard.events import Event
from celery_guard.jobs import cancelling, claiming, progress
from celery_guard.jobs.clock import in_seconds
from celery_guard.jobs.named import NamedJob
from celery_guard.models import Attempt, Job
from celery_guard.run.heartbeat import heart
from celery_guard.run.owner import owner
from celery_guard.run.rescue import rescue, take_from
from tests.kit.wait import wait_for
from tests.project.shop.models import Mark
from tests.run.delivery import deliver, job_of, receive, send, state_of
from tests.run.marks import on_database
from tests.run.sessions import elsewhere
from tests.run.tasks import ACTIONS, again_unless_stopped, in_body, in_chunks, in_steps

pytestmark = [*on_database, pytest.mark.mariadb]


def _seen(done: int, total: int | None) -> None:
    """Wait, as another connection, until the running job shows this."""

    def shown() -> bool:
        return Job.objects.filter(done=done, total=total, state="running").exists()

    elsewhere(lambda: wait_for(shown, what=f"{done} of {total}"))()


@pytest.mark.bar
def test_progress_is_seen_while_the_bodys_transaction_is_open(scratch: Path) -> None:
    """Another connection writes it, and only the newest word."""

    def act() -> None:
        for done in range(1, 6):
            current_job().progress(done, 10)
        _seen(5, 10)
        current_job().progress(7, 10)
        _seen(7, 10)

    ACTIONS["a"] = act
    answer = deliver(job_of(in_body.delay("a")))
    assert state_of(answer) == "SUCCESS"
    assert Mark.objects.count() == 1


def test_progress_costs_the_body_no_statement_and_is_written_rarely(scratch: Path) -> None:
    """Ten thousand calls are one write a second: the row is not rewritten for each."""
    statements: list[str] = []

    def act() -> None:
        def note(execute, sql, *rest):
            statements.append(sql)
            return execute(sql, *rest)

        with connections["default"].execute_wrapper(note):
            for done in range(10_000):
                current_job().progress(done, 10_000)
        assert statements == []
        assert len(current_job().told) <= 1
        _seen(9_999, 10_000)

    ACTIONS["a"] = act
    assert state_of(deliver(job_of(in_body.delay("a")))) == "SUCCESS"


def test_a_total_that_nobody_knows_is_none(scratch: Path) -> None:
    """Rows read from a stream."""
    ACTIONS["a"] = lambda: (current_job().progress(3), _seen(3, None))
    assert state_of(deliver(job_of(in_body.delay("a")))) == "SUCCESS"


@pytest.mark.parametrize("told", [(-1,), (1.5, 2), (True,), (1, "2"), (2**31,), (None, 4)], ids=str)
def test_what_is_no_count_is_an_error_at_once(told: tuple[object, ...], scratch: Path) -> None:
    """In the body that told it, not in a thread that nobody hears."""

    def act() -> None:
        with pytest.raises(ValueError, match="whole numbers"):
            current_job().progress(*told)  # type: ignore[arg-type]

    ACTIONS["a"] = act
    assert state_of(deliver(job_of(in_body.delay("a")))) == "SUCCESS"


@pytest.mark.bar
def test_a_zombie_shows_nothing(scratch: Path) -> None:
    """Whoever lost the job changes nothing by what it tells; nor does one with another owner."""

    told: list[progress.Told] = []

    def again() -> None:
        job = Job.objects.get()
        take_from("default", NamedJob(job.pk), owner())
        progress.report("default", owner(), {job.pk: told[0]})
        Job.objects.update(done=1, sent_at=in_seconds(0))
        # The same process has it once more: another attempt all the same.
        assert claiming.claim("default", NamedJob(job.pk), owner=owner(), lease=60)
        progress.report("default", owner(), {job.pk: told[0]})
        progress.report("default", uuid.uuid4(), {job.pk: dataclasses.replace(told[0], fence=3)})

    def act() -> None:
        told.append(progress.Told(fence=current_job().fence, done=9, total=9))
        elsewhere(again)()

    ACTIONS["a.before"] = act
    deliver(job_of(in_steps.delay("a")))
    job = Job.objects.get()
    assert (job.state, job.fence, job.done) == ("running", 3, 1)


def test_a_row_that_is_just_ending_holds_up_no_report(scratch: Path) -> None:
    """Others' leases hang on the thread that reports: it passes over what is locked."""

    def act() -> None:
        job = current_job()
        entered, leave = threading.Event(), threading.Event()

        def hold() -> None:
            with transaction.atomic():
                Job.objects.select_for_update().get(pk=job.id)
                entered.set()
                leave.wait(20)
            connections.close_all()

        thread = threading.Thread(target=hold)
        thread.start()
        entered.wait(20)
        told = progress.Told(fence=job.fence, done=1, total=2)
        try:
            progress.report("default", job.hold.owner, {job.id: told})
        finally:
            leave.set()
            thread.join()
        assert Job.objects.get(pk=job.id).done is None

    ACTIONS["a.before"] = act
    assert state_of(deliver(job_of(in_steps.delay("a")))) == "SUCCESS"


def _ask() -> None:
    elsewhere(lambda: cancelling.ask("default", Job.objects.get().public_id))()


@pytest.mark.bar
def test_a_checkpoint_ends_the_job_that_was_asked_to_stop(
    scratch: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Cancelled, remembered as that, and Celery told; what was done before stays done."""
    ACTIONS["a.1"] = _ask
    caplog.set_level(logging.INFO, "celery.app.trace")
    answer = deliver(job_of(in_chunks.delay("a", 3)))
    job, attempt = Job.objects.get(), Attempt.objects.get()
    assert (job.state, job.reason, job.failures) == ("cancelled", "cancel", 0)
    assert (attempt.outcome, attempt.reason) == ("cancelled", "cancel")
    assert state_of(answer) == "FAILURE"
    assert isinstance(answer.retval, Cancelled) or "Cancelled" in repr(answer.retval)
    assert Mark.objects.count() == 2
    (line,) = [record for record in caplog.records if record.name == "celery.app.trace"]
    assert (line.levelname, line.exc_info) == ("INFO", None)
    assert "raised expected" in line.getMessage()


def test_a_broad_autoretry_tries_nothing_again_that_was_asked_to_stop(scratch: Path) -> None:
    """`autoretry_for=(Exception,)` would catch it first."""
    ACTIONS["a"] = _ask
    deliver(job_of(again_unless_stopped.delay("a")))
    assert Job.objects.get().state == "cancelled"


def test_a_checkpoint_says_that_the_job_is_lost(scratch: Path) -> None:
    """The body stops there; the job is the next attempt's."""

    def act() -> None:
        job = current_job()
        elsewhere(lambda: take_from("default", NamedJob(job.id), owner()))()
        with pytest.raises(LeaseLost):
            job.checkpoint()
        assert job.lost
        raise LeaseLost

    ACTIONS["a.before"] = act
    assert state_of(deliver(job_of(in_steps.delay("a")))) == "IGNORED"
    assert Job.objects.get().state == "waiting"


def test_a_checkpoint_forgives_lost_leases(scratch: Path) -> None:
    """A long job that gets on between its rescues is no poison."""
    job = job_of(in_steps.delay("a"))
    Job.objects.update(lost=2)
    ACTIONS["a.before"] = lambda: current_job().checkpoint()
    deliver(job)
    assert Job.objects.get().lost == 0


def test_a_checkpoint_after_the_end_is_nothing(scratch: Path) -> None:
    """The job is done; there is nothing left to stop or to lose."""
    ACTIONS["a.after"] = lambda: current_job().checkpoint()
    assert state_of(deliver(job_of(in_steps.delay("a")))) == "SUCCESS"


def test_no_checkpoint_in_a_transaction(scratch: Path) -> None:
    """It would promise that what was done so far is done."""

    def act() -> None:
        with pytest.raises(EffectInTransaction, match="checkpoint"):
            current_job().checkpoint()

    def within() -> None:
        with transaction.atomic():
            act()

    ACTIONS["a"] = act
    ACTIONS["b.before"] = within
    assert state_of(deliver(job_of(in_body.delay("a")))) == "SUCCESS"
    assert state_of(deliver(job_of(in_steps.delay("b")))) == "SUCCESS"


def test_a_body_hears_of_a_cancel_by_its_reports(scratch: Path) -> None:
    """An atomic body, which has no checkpoints, may look at `cancel_asked` and give way."""

    def act() -> None:
        _ask()
        current_job().progress(1, 2)
        wait_for(lambda: current_job().cancel_asked, what="the request")
        raise Cancelled

    ACTIONS["a"] = act
    deliver(job_of(in_body.delay("a")))
    assert Job.objects.get().state == "cancelled"
    assert not Mark.objects.exists()


def test_a_heartbeat_hears_of_a_cancel(scratch: Path, heard: list[Event]) -> None:
    """And the lease is kept up all the same."""

    def act() -> None:
        _ask()
        current_job().beaten = 0.0
        elsewhere(heart().beat_once)()
        assert current_job().cancel_asked
        assert not current_job().lost

    ACTIONS["a"] = act
    assert state_of(deliver(job_of(in_body.delay("a")))) == "SUCCESS"
    assert [event.name for event in heard].count("run.cancel_heard") >= 1


@pytest.mark.parametrize("way", ["retry", "rescue"])
def test_what_was_asked_to_stop_does_not_run_again(way: str, scratch: Path) -> None:
    """A retry or a lost lease would be one more run of what nobody wants any more."""

    def act() -> None:
        _ask()
        if way == "retry":
            raise ConnectionError("a")
        job = current_job()
        Job.objects.filter(pk=job.id).update(lease_until=in_seconds(-1))
        elsewhere(lambda: rescue("default"))()

    ACTIONS["a.before"] = act
    deliver(job_of(in_steps.delay("a")))
    job = Job.objects.get()
    assert (job.state, job.reason, job.due_at, job.owner) == ("cancelled", "cancel", None, None)


def test_a_replayed_job_is_asked_nothing(scratch: Path) -> None:
    """It starts anew: without the old wish, and without the old progress."""
    from celery_guard.jobs import adding

    ACTIONS["a.0"] = _ask
    job = job_of(in_chunks.delay("a", 1))
    deliver(job)
    Job.objects.update(done=1, total=2)
    assert adding.replay("default", job.pk) == 1
    job.refresh_from_db()
    assert (job.cancel_asked_at, job.done, job.total) == (None, None, None)
    assert state_of(receive(send(job))) == "SUCCESS"
