"""Real workers and a dependency that bears little: nothing waits on a worker, nothing is counted."""

import signal
import time
from pathlib import Path

import pytest

from celery_guard.models import Attempt, Job
from celery_guard.relay.limits import store
from celery_guard.relay.limits.rules import rules_of
from tests.flows.staff import hire, job_of, wait_for_state
from tests.kit.processes import Processes
from tests.kit.wait import wait_for
from tests.project.shop import tasks
from tests.project.shop.witness import open_gate, traces
from tests.run.limited import at_the_desk, calls
from tests.run.marks import on_database

pytestmark = on_database
FORMS = ("redis", "database")


def _in_a_second(times: list[float]) -> int:
    """How many calls the fullest second holds."""
    return max(sum(first <= at <= first + 1 for at in times) for first in times)


@pytest.mark.bar
@pytest.mark.mariadb
@pytest.mark.parametrize("form", FORMS)
def test_a_throttled_provider_holds_up_nobody(
    form: str, processes: Processes, scratch: Path, settings: object
) -> None:
    """60 jobs at 8/s on two slots: never over the limit, hardly more than a claim a job, others pass at once."""
    hire(processes, concurrency=2, env={"GUARD_TEST_LIMITS": form})
    wait_for_state(tasks.mark.delay("ready"), "succeeded", timeout=60)
    throttled = [calls.delay("calls") for _ in range(60)]
    wait_for(lambda: traces("calls"), what="the first call")
    others = [tasks.mark.delay(f"n{n}") for n in range(10)]
    for handle in others:
        wait_for_state(handle, "succeeded", timeout=60)
    for handle in throttled:
        wait_for_state(handle, "succeeded", timeout=90)
    times = sorted(float(line) for line in traces("calls"))
    assert len(times) == 60
    # The times are those of the bodies, a little after the tokens were taken.
    assert _in_a_second(times) <= 8 + 5 + 3
    jobs = Job.objects.filter(task=calls.name)
    assert {(job.failures, job.lost) for job in jobs} == {(0, 0)}
    # A batch that was sent before anything was known comes back once.
    assert sum(job.starts for job in jobs) <= 1.7 * 60
    assert not Attempt.objects.exists()
    last = max(job.finished_at for job in jobs if job.finished_at)
    assert all(job_of(handle).finished_at < last for handle in others)


@pytest.mark.bar
@pytest.mark.parametrize("form", FORMS)
def test_a_permit_comes_back_after_a_kill(
    form: str, processes: Processes, scratch: Path, settings: object
) -> None:
    """kill -9 with the only permit held: free again with its lease; while it lived it was kept up."""
    settings.CELERY_GUARD = {**settings.CELERY_GUARD, "limits": form}  # type: ignore[attr-defined]
    first = hire(processes, concurrency=1, env={"GUARD_TEST_LIMITS": form})
    handle = at_the_desk.delay("a")
    wait_for(lambda: traces("a"), what="the body to begin")
    desk = rules_of("desk")
    # Two leases long the permit is held, by the heartbeat.
    until = time.monotonic() + 4.5
    while time.monotonic() < until:
        assert store.read([desk])[0].permits == 1
        time.sleep(0.1)
    first.signal(signal.SIGKILL, whole=True)
    wait_for(lambda: store.read([desk])[0].permits == 0, what="the lease to end")
    hire(processes, concurrency=1, env={"GUARD_TEST_LIMITS": form})
    open_gate("a")
    job = wait_for_state(handle, "succeeded", timeout=60)
    assert (job.failures, len(traces("a"))) == (0, 2)
    # It goes back after the commit that was awaited above.
    wait_for(lambda: store.read([desk])[0].permits == 0, what="the permit to be free")
