"""Tenants beside each other, with a real worker and its own relay."""

import pytest

from celery_guard.enqueue.many import enqueue_many
from celery_guard.models import Job, WorkerPresence
from tests.flows.staff import hire, wait_for_state
from tests.kit.processes import Processes
from tests.kit.wait import wait_for
from tests.project.shop.tasks import mark_for
from tests.run.marks import on_database

pytestmark = on_database

FLOOD = 400


@pytest.mark.bar
@pytest.mark.timeout(180)
def test_a_lone_job_starts_beside_a_flood(processes: Processes) -> None:
    """A's 400 jobs are there first; few of them start between B's commit and B's start."""
    hire(processes)
    wait_for(WorkerPresence.objects.exists, what="the worker's report")
    enqueue_many([mark_for.s("a", f"a{n}") for n in range(FLOOD)])
    of_a = Job.objects.filter(tenant="a")
    wait_for(lambda: of_a.filter(state="succeeded").count() > 20, timeout=60, what="A's first jobs")
    lone = wait_for_state(mark_for.delay("b", "b"), "succeeded")
    assert lone.started_at is not None
    between = of_a.filter(started_at__gt=lone.created_at, started_at__lt=lone.started_at).count()
    # What the broker held when B came (the window of a lane with one tenant), and one a slot.
    assert between <= 16 + 2
    assert (
        of_a.filter(started_at__gt=lone.started_at).exists() or of_a.filter(sent_at=None).exists()
    )
