"""A body that harms its process ends with a reason, and its neighbours run."""

from pathlib import Path

import pytest

from celery_guard.jobs.states import TERMINAL
from celery_guard.models import Attempt
from tests.flows.staff import hire, wait_for_state
from tests.kit.processes import Processes
from tests.project.shop import tasks
from tests.project.shop.models import Mark
from tests.run.harmful import forks, forks_in_steps, harms
from tests.run.marks import on_database

pytestmark = [*on_database, pytest.mark.mariadb]

ENDS = {
    "exits at once": ("dead", "poison", 3),
    "hangs in C": ("failed", "timed_out", 1),
    "takes all memory": ("failed", "unknown_error", 1),
    "raises what can't be pickled": ("failed", "unknown_error", 1),
    "forks": ("succeeded", "done", 1),
}


def test_a_body_that_harms_its_process_harms_no_neighbour(
    processes: Processes, scratch: Path
) -> None:
    """All of them in one worker with one child: each ends as it should, nothing of it is written twice."""
    hire(processes)
    bad = {how: harms.delay(how.replace(" ", "-"), how) for how in ENDS}
    neighbours = [tasks.mark.delay(f"n{n}") for n in range(3)]
    found = {how: wait_for_state(handle, ENDS[how][0], timeout=60) for how, handle in bad.items()}
    assert {how: (job.state, job.reason, job.starts) for how, job in found.items()} == ENDS
    for neighbour in neighbours:
        wait_for_state(neighbour, "succeeded")
    names = set(Mark.objects.values_list("name", flat=True))
    assert names == {"forks", "n0", "n1", "n2"}
    assert Attempt.objects.filter(job_id=found["exits at once"].pk).count() == 3


def test_a_forked_child_gets_no_further_than_the_body(processes: Processes, scratch: Path) -> None:
    """However it leaves the body: it ends there, and the parent's job is finished and told once."""
    hire(processes)
    ways = {"returns": 0, "raises": 1, "exits": 7}
    jobs = {how: forks.delay(how, how) for how in ways}
    jobs["finishes"] = forks_in_steps.delay("finishes", "finishes")
    found = {how: wait_for_state(handle, *TERMINAL, timeout=60) for how, handle in jobs.items()}
    ends = {how: (job.state, job.result, job.starts) for how, job in found.items()}
    statuses = {**ways, "finishes": 1}
    assert ends == {how: ("succeeded", str(status), 1) for how, status in statuses.items()}
    assert set(Mark.objects.values_list("name", flat=True)) == set(jobs)
    assert "forks_in_steps: a process that the body forked has no job" in processes.started[0].log
