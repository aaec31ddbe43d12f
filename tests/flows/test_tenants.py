"""What is sent after a bad end is for the tenant of the job, whichever process sends it."""

from pathlib import Path

import pytest
from celery import chord, current_app

from celery_guard.models import Job
from tests.flows.staff import hire, wait_for_state
from tests.flows.tenanted import gather_rents, hear, rent
from tests.kit.processes import Processes
from tests.kit.wait import wait_for
from tests.project.shop.witness import traces
from tests.run.marks import on_database

pytestmark = on_database


def heard() -> list[tuple[str, str]]:
    """The errbacks' tenants and states."""
    return list(Job.objects.filter(task=hear.name).values_list("tenant", "state"))


@pytest.mark.bar
@pytest.mark.parametrize(("way", "end"), [("sleep", "failed"), ("die", "dead")])
def test_an_errback_is_for_the_tenant_of_a_job_whose_process_died(
    way: str, end: str, processes: Processes, scratch: Path
) -> None:
    """Over a hard limit the main process sends it; of a child that died a worker is told again."""
    hire(processes)
    handle = rent.apply_async(("a", "seven", way), link_error=hear.s())
    wait_for_state(handle, end, timeout=60)
    wait_for(lambda: heard() == [("seven", "succeeded")], what="the errback to run once")


def test_a_terminated_member_sends_its_chords_errback_for_its_tenant(
    processes: Processes, scratch: Path
) -> None:
    """The main process tells the result backend, which fails the chord."""
    hire(processes)
    body = gather_rents.s().on_error(hear.s())
    chord([rent.s("a", "seven", "sleep").set(time_limit=50)], body).apply_async()
    wait_for(lambda: traces("a"), what="the member to begin")
    member = Job.objects.get(task=rent.name)
    current_app.control.revoke(str(member.public_id), terminate=True)
    wait_for(lambda: heard() == [("seven", "succeeded")], what="the chord's errback")
