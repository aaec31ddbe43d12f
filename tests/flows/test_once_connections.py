"""A worker's database connections around guarded and plain tasks."""

from pathlib import Path

import pytest

from celery_guard.models import Job
from tests.flows.staff import hire, wait_for_state
from tests.kit.processes import Processes
from tests.kit.wait import wait_for
from tests.project.shop import tasks
from tests.project.shop.witness import traces
from tests.run.marks import on_database
from tests.run.sessions import end_session
from tests.run.tasks import backend_pid, plain_backend_pid

pytestmark = on_database


@pytest.mark.bar
def test_guarded_tasks_keep_their_connection_and_plain_ones_do_not(
    processes: Processes, scratch: Path
) -> None:
    """One session for many guarded tasks of a child; Celery's own handling for all others."""
    hire(processes)
    for _ in range(5):
        wait_for_state(backend_pid.delay(), "succeeded")
    kept = traces("guarded-pid")
    for _ in range(3):
        plain_backend_pid.delay()
    wait_for(lambda: len(traces("plain-pid")) == 3, what="the plain tasks")
    wait_for_state(backend_pid.delay(), "succeeded")
    assert len(set(kept)) == 1
    assert len(set(traces("plain-pid"))) == 3
    assert traces("guarded-pid")[-1] not in kept


@pytest.mark.bar
def test_a_kept_connection_that_died_is_renewed(processes: Processes, scratch: Path) -> None:
    """All sessions of the database are ended between two tasks: no attempt is used up."""
    hire(processes)
    wait_for_state(backend_pid.delay(), "succeeded")
    (pid,) = traces("guarded-pid")
    end_session(int(pid))
    job = wait_for_state(backend_pid.delay(), "succeeded")
    assert (job.starts, job.failures) == (1, 0)
    assert len(set(traces("guarded-pid"))) == 2


def test_a_new_child_does_not_inherit_a_connection(processes: Processes, scratch: Path) -> None:
    """After the main process has rescued a killed child's job, old and new children work apart."""
    hire(processes, concurrency=2)
    killed = tasks.dies.delay("a", 1)
    handles = [tasks.mark.delay(f"n{n}") for n in range(20)]
    wait_for_state(killed, "succeeded")
    for handle in handles:
        wait_for_state(handle, "succeeded")
    assert not Job.objects.exclude(failures=0).exists()
