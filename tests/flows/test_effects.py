"""A batch of effects outlives the worker that began it."""

from pathlib import Path

import pytest

from celery_guard.models import Effect
from tests.flows.mailing import BLOCKED, mailing
from tests.flows.staff import hire, job_of, wait_for_state
from tests.kit.processes import Processes
from tests.kit.wait import wait_for
from tests.project.shop.models import Mark
from tests.project.shop.witness import open_gate, traces
from tests.run.marks import on_database

pytestmark = [*on_database, pytest.mark.mariadb]

COUNT = 50


@pytest.mark.bar
def test_a_batch_killed_at_twenty_goes_on_at_twenty_one(
    processes: Processes, scratch: Path
) -> None:
    """kill -9 with the 21st mail under way: it alone is sent again, under its old key; then the rest."""
    first = hire(processes)
    handle = mailing.delay("a", COUNT)
    wait_for(lambda: len(traces("mails")) == BLOCKED, what="the 21st mail to be under way")
    first.kill()
    assert Effect.objects.filter(state="confirmed").count() == BLOCKED - 1
    open_gate("mails")
    hire(processes)
    job = wait_for_state(handle, "succeeded")
    calls = [line.split() for line in traces("mails")]
    numbers = [int(number) for number, _, _ in calls]
    assert numbers == [*range(1, BLOCKED + 1), *range(BLOCKED, COUNT + 1)]
    assert len({key for _, key, _ in calls}) == COUNT
    assert [number for number, _, again in calls if again == "True"] == [str(BLOCKED)]
    assert job.starts == 2
    # The body had finished its job; what it returned is stored a moment later.
    wait_for(lambda: job_of(handle).result == str(COUNT), what="the result to be stored")
    assert Mark.objects.get().value == str(sum(range(COUNT + 1)))
