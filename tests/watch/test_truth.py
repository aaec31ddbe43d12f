"""Numbers of real workers: what they did is what the snapshot and a scrape say."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from celery_guard.conf import guard_settings
from celery_guard.models import Job
from celery_guard.watch.lanes import LaneView, read_lanes
from celery_guard.watch.metrics import PREFIX
from celery_guard.watch.prometheus import GuardCollector
from tests.kit.processes import Processes
from tests.kit.wait import wait_for
from tests.project.shop import tasks
from tests.project.shop.witness import open_gate
from tests.watch.scrapes import scrape

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.mariadb]

JOBS = 40


def lane(name: str = "medium") -> LaneView | None:
    return next((view for view in read_lanes("default") if view.name == name), None)


@pytest.mark.bar
def test_the_counters_equal_the_ledger_after_a_burst(processes: Processes, scratch: Path) -> None:
    """Forty jobs on two processes that then idle: forty completions, nothing left, two slots."""
    for number in range(JOBS):
        tasks.mark.delay(f"job-{number}")
    processes.worker(concurrency=2)
    wait_for(lambda: Job.objects.filter(state="succeeded").count() == JOBS, what="all jobs")

    def settled() -> bool:
        view = lane()
        return view is not None and view.completions_total == JOBS and not view.ready

    wait_for(settled, what="the counts of both processes")
    found = scrape(GuardCollector())
    queue = guard_settings().lane("medium").queue
    assert found[f"{PREFIX}queue_completions_total", (queue,)] == JOBS
    assert found[f"{PREFIX}queue_depth", (queue, "ready")] == 0
    assert found[f"{PREFIX}queue_oldest_age_seconds", (queue,)] == 0
    assert found[f"{PREFIX}worker_slots", (queue,)] == 2
    assert found[f"{PREFIX}queue_arrivals_per_second", (queue,)] > 0
    call_command("guard_stats")


def test_running_jobs_are_seen_and_a_dead_site_grows_stale(
    processes: Processes, scratch: Path
) -> None:
    """Two run and one waits; when everything is killed, the snapshot's age says so."""
    worker = processes.worker(concurrency=2)
    for number in range(3):
        tasks.hold.delay(f"gate-{number}")

    def busy() -> bool:
        view = lane()
        return view is not None and (view.running, view.ready) == (2, 1)

    wait_for(busy, what="two running jobs and one waiting")
    call_command("guard_stats")
    for number in range(3):
        open_gate(f"gate-{number}")
    worker.kill()

    def stale() -> bool:
        try:
            call_command("guard_stats")
        except CommandError as error:
            return error.returncode == 2
        return False

    wait_for(stale, what="the snapshot to be stale")
