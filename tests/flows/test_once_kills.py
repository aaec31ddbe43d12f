"""Workers and their children die in mid-body; the business writes are there once."""

import os
import signal
from pathlib import Path

import pytest
from celery import chord

from celery_guard.faults import arm
from celery_guard.models import Attempt, Job
from tests.flows.staff import hire, job_of, wait_for_state
from tests.kit.processes import Processes
from tests.kit.wait import wait_for
from tests.project.shop import tasks
from tests.project.shop.models import Mark
from tests.project.shop.witness import open_gate, traces
from tests.run.marks import on_database
from tests.run.tasks import collect, echo, ends, first_killed

pytestmark = [*on_database, pytest.mark.mariadb]


@pytest.mark.bar
def test_a_killed_child_is_replaced_and_the_job_runs_again(
    processes: Processes, scratch: Path
) -> None:
    """kill -9 of the child in mid-body: known dead, rescued long before its lease is over, one set of writes."""
    hire(processes)
    handle = first_killed.delay("a")
    job = wait_for_state(handle, "succeeded")
    assert (job.starts, job.lost, job.failures) == (2, 1, 0)
    assert Mark.objects.count() == 1
    assert handle.get(timeout=10) == "a"
    assert [attempt.outcome for attempt in Attempt.objects.all()] == ["lost"]


@pytest.mark.bar
@pytest.mark.parametrize("body", [tasks.hold, tasks.hold_open], ids=["atomic", "in steps"])
def test_a_killed_worker_loses_its_lease_and_nothing_else(
    body: object, processes: Processes, scratch: Path
) -> None:
    """kill -9 of the whole worker in mid-body: after the lease another worker runs it, once."""
    first = hire(processes)
    handle = body.delay("a")  # type: ignore[attr-defined]
    wait_for(lambda: traces("a"), what="the body to begin")
    first.kill()
    hire(processes)
    open_gate("a")
    job = wait_for_state(handle, "succeeded")
    assert Mark.objects.count() == 1
    assert (job.starts, job.lost) == (2, 1)


@pytest.mark.bar
def test_a_poison_job_is_parked_and_its_neighbours_flow(
    processes: Processes, scratch: Path
) -> None:
    """A body that always kills its process is started three times, then dead with the reason."""
    hire(processes)
    poison = tasks.dies.delay("poison", 99)
    neighbours = [tasks.mark.delay(f"n{n}") for n in range(5)]
    job = wait_for_state(poison, "dead", timeout=60)
    assert (job.reason, job.starts, len(traces("poison"))) == ("poison", 3, 3)
    for neighbour in neighbours:
        wait_for_state(neighbour, "succeeded")
    assert Mark.objects.count() == 5


def test_a_body_that_exits_is_counted_like_a_kill(processes: Processes, scratch: Path) -> None:
    """sys.exit() in a body ends in poison, not in an endless loop, and Celery hears of no failure."""
    hire(processes)
    job = wait_for_state(ends.delay("a", "exit"), "dead", timeout=60)
    assert (job.reason, job.starts) == ("poison", 3)
    assert not Mark.objects.exists()


@pytest.mark.timeout(300)
def test_a_frozen_worker_is_rescued_and_commits_nothing_late(
    processes: Processes, scratch: Path
) -> None:
    """SIGSTOP past the lease, then SIGCONT: the second run counts, the first one's writes are void."""
    first = hire(processes)
    handle = tasks.hold.delay("a")
    wait_for(lambda: traces("a"), timeout=60, what="the body to begin")
    for pid in first.members():
        os.kill(pid, signal.SIGSTOP)
    hire(processes)
    wait_for(lambda: len(traces("a")) > 1, timeout=60, what="the second run")
    open_gate("a")
    wait_for_state(handle, "succeeded", timeout=60)
    for pid in first.members():
        os.kill(pid, signal.SIGCONT)
    wait_for(lambda: "run.lease_lost" in first.log, timeout=60, what="the first worker to notice")
    job = job_of(handle)
    assert (job.state, Mark.objects.count()) == ("succeeded", 1)
    # A busy machine may keep the second run's heartbeat from the processor for a lease, too.
    assert job.starts == len(traces("a")) > 1


@pytest.mark.bar
def test_a_chord_whose_member_is_killed_ends_right(processes: Processes, scratch: Path) -> None:
    """Every member counts once, the body runs once, nobody hangs."""
    hire(processes, concurrency=2)
    result = chord([first_killed.s(name) for name in "abc"], collect.s()).delay()
    assert result.get(timeout=60) == ["a", "b", "c"]
    assert traces("collect") == ["a,b,c"]
    assert Mark.objects.count() == 3
    assert set(Job.objects.values_list("state", flat=True)) == {"succeeded"}


@pytest.mark.parametrize("point", ["run.claimed", "run.finishing", "run.committed"])
def test_death_at_every_step_of_an_attempt(point: str, processes: Processes, scratch: Path) -> None:
    """After the claim, before COMMIT, and between COMMIT and the answer: one set of writes."""
    hire(processes, env={"GUARD_FAULT": point})
    handle = tasks.mark.delay("a", "v")
    # Every child of this worker dies at that point; a healthy one takes over.
    wait_for(lambda: "SIGKILL" in processes.started[0].log, what="the fault")
    processes.started[0].kill()
    hire(processes)
    job = wait_for_state(handle, "succeeded")
    assert (job.result, Mark.objects.count()) == ('"v"', 1)


@pytest.mark.bar
@pytest.mark.parametrize("point", ["run.committed", "run.answering"])
def test_a_chord_outlives_a_child_that_dies_before_its_answer(
    point: str, processes: Processes, scratch: Path
) -> None:
    """kill -9 between COMMIT and the answer: the message goes round once more, the body runs once."""
    hire(processes, env={"GUARD_FAULT": f"in:{scratch}"}, concurrency=2)
    result = chord([tasks.hold.s("a"), tasks.add.s(1, 1)], echo.s()).delay()
    others = Job.objects.filter(task=tasks.add.name, answered_at__isnull=False)
    wait_for(lambda: traces("a") and others.exists(), what="only one member to be left")
    arm(scratch, point)
    open_gate("a")
    wait_for(lambda: list(scratch.glob("*.died")), what="its death")
    assert result.get(timeout=30) == [None, 2]
    wait_for(
        lambda: not Job.objects.filter(awaited=True, answered_at=None).exists(),
        what="everybody to be answered",
    )
    assert set(Job.objects.values_list("state", flat=True)) == {"succeeded"}
    assert (Mark.objects.count(), len(traces("echo"))) == (1, 1)
