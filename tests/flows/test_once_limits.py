"""Time limits, revocation and shutdown: each ends in a defined state, and the key is free."""

import signal
from pathlib import Path

import pytest
from celery import current_app

from celery_guard.models import Attempt
from tests.flows.staff import hire, job_of, wait_for_state
from tests.kit.processes import Processes
from tests.kit.wait import wait_for
from tests.project.shop import tasks
from tests.project.shop.models import Mark
from tests.project.shop.witness import open_gate, traces
from tests.run.marks import on_database
from tests.run.tasks import hangs, sleeps_softly, told_of_error

pytestmark = on_database


@pytest.mark.bar
def test_a_soft_limit_fails_the_job(processes: Processes, scratch: Path) -> None:
    """Rolled back, failed with the reason, and the next call of the key runs."""
    hire(processes)
    handle = sleeps_softly.delay("a")
    job = wait_for_state(handle, "failed")
    assert job.reason == "timed_out"
    assert not Mark.objects.exists()
    assert sleeps_softly.delay("a").public_id == handle.public_id
    assert wait_for(lambda: len(traces("a")) == 2, what="the replay to begin")


@pytest.mark.bar
def test_a_hard_limit_fails_the_job_before_celery_says_so(
    processes: Processes, scratch: Path
) -> None:
    """The main process ends the row under the dying child's fence; errbacks run once; nothing is written late."""
    hire(processes)
    handle = hangs.s("a").on_error(told_of_error.s()).apply_async()
    job = wait_for_state(handle, "failed")
    assert job.reason == "timed_out"
    wait_for(lambda: traces("errback"), what="the errback")
    attempt = Attempt.objects.get()
    assert (attempt.outcome, attempt.reason) == ("failed", "timed_out")
    # The worker goes on, with a new child.
    wait_for_state(tasks.mark.delay("next"), "succeeded")
    assert [mark.name for mark in Mark.objects.all()] == ["next"]
    assert len(traces("errback")) == 1


def test_a_revoked_job_is_cancelled(processes: Processes, scratch: Path) -> None:
    """Before its start: the row says cancelled, and the key can be used again."""
    hire(processes)
    gate = tasks.hold.delay("gate")
    wait_for(lambda: traces("gate"), what="the only slot to be taken")
    handle = tasks.mark.delay("a")
    current_app.control.revoke(handle.id)
    open_gate("gate")
    wait_for_state(gate, "succeeded")
    wait_for_state(handle, "cancelled")
    assert traces("a") == []
    assert job_of(tasks.mark.delay("a")).state == "waiting"


def test_a_terminated_job_is_cancelled(processes: Processes, scratch: Path) -> None:
    """revoke(terminate=True) in mid-body: rolled back, cancelled, not started again."""
    hire(processes)
    handle = tasks.hold.delay("a")
    wait_for(lambda: traces("a"), what="the body to begin")
    current_app.control.revoke(handle.id, terminate=True)
    wait_for_state(handle, "cancelled")
    wait_for_state(tasks.mark.delay("next"), "succeeded")
    assert [mark.name for mark in Mark.objects.all()] == ["next"]
    assert len(traces("a")) == 1


@pytest.mark.bar
def test_a_cold_shutdown_puts_the_job_back_at_once(processes: Processes, scratch: Path) -> None:
    """SIGQUIT in mid-body: waiting again with nothing used up, long before the lease is over."""
    first = hire(processes)
    handle = tasks.hold.delay("a")
    wait_for(lambda: traces("a"), what="the body to begin")
    first.signal(signal.SIGQUIT)
    wait_for(lambda: not first.alive, what="the worker to end")
    job = job_of(handle)
    assert (job.state, job.reason) == ("waiting", "shutdown")
    assert (job.failures, job.lost) == (0, 0)
    hire(processes)
    open_gate("a")
    wait_for_state(handle, "succeeded")
    assert Mark.objects.count() == 1


def test_a_warm_shutdown_lets_the_body_end(processes: Processes, scratch: Path) -> None:
    """SIGTERM in mid-body: the result is kept, and the job has run once."""
    first = hire(processes)
    handle = tasks.hold.delay("a")
    wait_for(lambda: traces("a"), what="the body to begin")
    first.signal(signal.SIGTERM)
    open_gate("a")
    wait_for(lambda: not first.alive, what="the worker to end")
    job = job_of(handle)
    assert (job.state, job.starts, Mark.objects.count()) == ("succeeded", 1, 1)


@pytest.mark.parametrize("pool", ["threads", "solo"])
def test_other_pools_run_and_fail_and_retry(pool: str, processes: Processes, scratch: Path) -> None:
    """The guard needs no prefork."""
    hire(processes, pool=pool, concurrency=3)
    done = [tasks.mark.delay(f"n{n}", "v") for n in range(6)]
    flaky = tasks.flaky.delay("f", 1)
    failed = tasks.verdict.delay("v", "permanent")
    for handle in done:
        wait_for_state(handle, "succeeded")
    assert wait_for_state(flaky, "succeeded").failures == 1
    assert wait_for_state(failed, "failed").reason == "permanent"
    assert Mark.objects.count() == 7
