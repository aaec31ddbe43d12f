"""A small job behind a backlog of long ones, with a real worker and its own relay."""

import pytest

from celery_guard.enqueue.many import enqueue_many
from celery_guard.models import Job, WorkerPresence
from tests.flows.staff import hire, wait_for_state
from tests.kit.processes import Processes
from tests.kit.wait import wait_for
from tests.project.shop.tasks import hold, mark
from tests.project.shop.witness import open_gate
from tests.relay.ledger import measured, wait_until_workers_are_read
from tests.run.marks import on_database

pytestmark = on_database

KEEPS = {"DJANGO_SETTINGS_MODULE": "tests.flows.small_settings"}


@pytest.mark.bar
@pytest.mark.timeout(120)
def test_a_small_job_starts_while_long_ones_wait(processes: Processes) -> None:
    """Of two slots long jobs have one; the small job ends before the first of them does."""
    measured(hold.name, seconds=6000, runs=10)
    measured(mark.name, seconds=1, runs=10)
    hire(processes, concurrency=2, env=KEEPS)
    wait_for(WorkerPresence.objects.exists, what="the worker's report")
    wait_until_workers_are_read("medium")
    enqueue_many([hold.s(f"long-{n}") for n in range(40)])
    longs = Job.objects.filter(task=hold.name)
    wait_for(longs.filter(state="running").exists, what="a long job to run")
    wait_for_state(mark.delay("small"), "succeeded")
    assert longs.filter(state="running").count() == 1
    assert not longs.filter(state="succeeded").exists()
    first = longs.get(state="running")
    open_gate(str(first.key).removeprefix("hold:"))
    wait_for(
        longs.exclude(pk=first.pk).filter(state="running").exists, what="the next long job to run"
    )
