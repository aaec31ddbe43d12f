"""drain() and assert_enqueued(): a plain TestCase, no broker, the same ledger."""

import socket
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest
from celery import chain, current_app
from django.db import connection, transaction
from django.test import TestCase, TransactionTestCase

from celery_guard.models import Job
from celery_guard.testing import assert_enqueued, drain
from tests.kit.brokers import on_broker
from tests.project.shop import tasks
from tests.project.shop.models import Invoice, Mark
from tests.testing.tasks import loose, rarely, sound, spoils, starts_a_chord

UNREACHABLE = "redis://127.0.0.1:1/0"


@pytest.fixture(autouse=True)
def _no_broker(scratch: object, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Neither broker nor result backend is there, and nobody may try."""
    monkeypatch.setitem(current_app.conf.changes, "result_backend", UNREACHABLE)
    # Celery keeps the backend that it made: this one must go with the test.
    monkeypatch.setattr(current_app, "_backend_cache", None)
    monkeypatch.setattr(current_app._local, "backend", None, raising=False)

    def refused(*address: Any) -> None:
        raise AssertionError(f"a socket to {address}")

    monkeypatch.setattr(socket.socket, "connect", refused)
    # Pools too are kept, and go with the block.
    with on_broker(UNREACHABLE):
        yield


class Undone(Exception):
    """Rolls back."""


class InATestCase(TestCase):
    """One connection, one transaction that never commits."""

    databases = {"default", "other"}

    def test_what_was_enqueued_runs(self) -> None:
        """Due jobs run, and the jobs that they enqueue; the rows are those of a worker."""
        sound.delay("a")
        ran = drain()
        assert [one.job.key for one in ran] == ["sound:a", "mark:a-next"]
        assert {job.state for job in ran.succeeded} == {"succeeded"}
        assert sorted(Mark.objects.values_list("name", flat=True)) == ["a", "a-next"]

    def test_jobs_of_a_savepoint_that_rolled_back_do_not_run(self) -> None:
        """They are not there; the others are."""
        tasks.issue_invoice.delay(1)
        try:
            with transaction.atomic():
                tasks.issue_invoice.delay(2)
                raise Undone
        except Undone:
            pass
        drain()
        assert [invoice.order_id for invoice in Invoice.objects.all()] == [1]
        assert_enqueued(tasks.issue_invoice, (2,), count=0)

    def test_a_database_error_in_a_body_leaves_the_test_usable(self) -> None:
        """The body's own writes are undone and the job has failed; the test's rows stay."""
        Mark.objects.create(name="mine")
        spoils.delay("a")
        (ran,) = drain()
        assert (ran.job.state, ran.told is not None) == ("failed", True)
        assert Mark.objects.filter(name="mine").exists()
        assert not connection.needs_rollback

    def test_a_body_without_a_finish_is_finished(self) -> None:
        """The test's own transaction is not taken for one that the body left open."""
        loose.delay("a")
        (ran,) = drain(propagate=True)
        assert (ran.job.state, ran.job.result) == ("succeeded", '"a"')

    def test_a_retry_waits_until_time_passes(self) -> None:
        """Without ``later`` a retry stays where it is; with it, it runs in its turn."""
        tasks.throttled.delay("a", 2, 60.0)
        assert [one.job.state for one in drain()] == ["waiting"]
        assert [one.job.state for one in drain(later=True)] == ["waiting", "succeeded"]

    def test_a_countdown_runs_in_its_turn(self) -> None:
        """Time passes from one due time to the next."""
        tasks.mark.apply_async(("second",), countdown=7200)
        tasks.mark.apply_async(("first",), countdown=3600)
        assert drain() == []
        assert [one.job.key for one in drain(later=True)] == ["mark:first", "mark:second"]

    def test_a_period_passes(self) -> None:
        """It counts from the end of a run, which grows older with the jobs that wait for it."""
        rarely.delay("a")
        assert len(drain()) == 1
        rarely.delay("a")
        assert drain() == []
        with mock.patch("celery_guard.testing.draining.SKIPS", 5):
            assert len(drain(later=True)) == 1

    def test_what_never_comes_to_run_ends(self) -> None:
        """However much time passes: the drain tells so instead of going round."""
        tasks.mark.apply_async(("a",), countdown=60)
        with (
            mock.patch("celery_guard.testing.draining.SKIPS", 5),
            mock.patch("celery_guard.testing.draining.skip_to_next", return_value=True),
            pytest.raises(RuntimeError, match="time passed 5 times"),
        ):
            drain(later=True)

    def test_canvas_goes_on_in_the_ledger(self) -> None:
        """A chain's second step and a chord's body run, with the result of what came before."""
        chain(tasks.add.s(1, 2), tasks.add.s(10)).delay()
        starts_a_chord.delay("a")
        drain()
        assert Mark.objects.get(name="a").value == "6"
        assert sorted(Job.objects.filter(task=tasks.add.name).values_list("result", flat=True)) == [
            "0",
            "13",
            "2",
            "3",
            "4",
        ]

    def test_failures_can_be_raised(self) -> None:
        """``propagate`` raises what Celery was told."""
        tasks.verdict.delay("a", "bug")
        with pytest.raises(ZeroDivisionError):
            drain(propagate=True)
        assert_enqueued(tasks.verdict)[0].refresh_from_db()

    def test_what_is_tried_for_ever_ends(self) -> None:
        """A job that snoozes again and again reaches the limit, and the message says which."""
        tasks.throttled.delay("a", 10_000)
        with pytest.raises(RuntimeError, match="throttled"):
            drain(later=True, limit=20)

    def test_what_did_not_run_waits_again(self) -> None:
        """An error in the middle leaves no job marked as sent."""
        for name in "abc":
            tasks.mark.delay(name)
        with (
            mock.patch("celery_guard.testing.draining.deliver", side_effect=KeyboardInterrupt),
            pytest.raises(KeyboardInterrupt),
        ):
            drain()
        assert Job.objects.unsent().count() == 2

    def test_a_job_is_found_by_its_call(self) -> None:
        """Positional or by name, it is the same call; a wrong count names what is there."""
        tasks.mark.delay("a", "v")
        (job,) = assert_enqueued(tasks.mark, kwargs={"name": "a", "value": "v"})
        assert job.key == "mark:a"
        with pytest.raises(AssertionError, match=r"mark:a \(waiting\)"):
            assert_enqueued(tasks.mark, ("b",))
        with pytest.raises(AssertionError, match="not 2"):
            assert_enqueued(tasks.mark, count=2)

    def test_eager_does_not_poison_the_transaction(self) -> None:
        """apply() of a body that runs into a database error, in the middle of a test."""
        assert spoils.apply(("a",)).state == "FAILURE"
        assert not Mark.objects.exists()


class InATransactionTestCase(TransactionTestCase):
    """Commits are real."""

    databases = {"default", "other"}

    def test_what_was_enqueued_runs(self) -> None:
        """The same call, the same answer; the waker is not needed and finds nobody."""
        with mock.patch("celery_guard.relay.wake._waker.note"):
            sound.delay("a")
            assert len(drain().succeeded) == 2
        assert Mark.objects.count() == 2
