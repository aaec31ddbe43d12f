"""A bulk replay outlives the relays that do it."""

from pathlib import Path

import pytest

from celery_guard.faults import arm
from celery_guard.jobs.clock import DatabaseNow
from celery_guard.models import Job, Replay, ReplayItem
from celery_guard.settle.replay import starting
from celery_guard.settle.replay.choosing import Wanted
from tests.flows.staff import hire
from tests.kit.processes import Processes
from tests.kit.wait import wait_for
from tests.project.shop import tasks
from tests.project.shop.models import Mark
from tests.project.shop.witness import traces
from tests.run.marks import on_database

pytestmark = [*on_database, pytest.mark.mariadb]

COUNT = 40


@pytest.mark.bar
def test_relays_that_die_in_a_replay_move_each_job_once(
    processes: Processes, scratch: Path
) -> None:
    """kill -9 before and after the commit of a step: the next relay goes on, no job runs twice."""
    for number in range(COUNT):
        tasks.mark.delay(f"m{number}")
    now = DatabaseNow()
    Job.objects.update(state="failed", due_at=None, finished_at=now, error="{}", reason="permanent")
    hire(processes, env={"GUARD_FAULT": f"in:{scratch}"})
    for point in ("settle.replaying", "settle.replayed"):
        arm(scratch, point)
    wanted = Wanted(task=tasks.mark.name)
    replay = starting.start("default", wanted, pace="20/s", reason="mended", author="ana")
    wait_for(lambda: len(list(scratch.glob("*.died"))) == 2, timeout=90, what="both deaths")
    done = Replay.objects.filter(pk=replay.pk, state="done")
    wait_for(done.exists, timeout=60, what="the replay to end")
    wait_for(
        lambda: Job.objects.filter(state="succeeded").count() == COUNT, timeout=60, what="all jobs"
    )
    assert ReplayItem.objects.filter(state="replayed").count() == COUNT
    assert set(Job.objects.values_list("fence", flat=True)) == {2}
    assert all(len(traces(f"m{number}")) == 1 for number in range(COUNT))
    assert Mark.objects.count() == COUNT
