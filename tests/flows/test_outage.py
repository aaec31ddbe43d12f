"""A broker that was away while work piled up; ``GUARD_TEST_OUTAGE=50000`` for the full form."""

import os
import time
from pathlib import Path

import pytest
from django.conf import settings

import servers
from celery_guard.models import Attempt, Job, LaneLead, WorkerPresence
from tests.flows.outage.settings import BURST, RATE, SERVICES, WINDOW
from tests.flows.outage.watching import Watch, fullest
from tests.kit.processes import Processes
from tests.kit.wait import wait_for
from tests.project.shop.witness import traces
from tests.run.marks import on_database

JOBS = int(os.environ.get("GUARD_TEST_OUTAGE", "200"))
LEAST = JOBS / len(SERVICES) / RATE
"""Seconds in which the services could have answered all calls."""
LONG = LEAST >= 200
PATIENCE = 120 + 4 * LEAST
LATE = 1.0
"""Seconds that a body may begin after its call was allowed, on a busy machine."""

pytestmark = [*on_database, pytest.mark.timeout(300 + 2 * PATIENCE)]


def _is_missed() -> bool:
    return LaneLead.objects.filter(lane="medium", failing_since__isnull=False).exists()


@pytest.mark.bar
def test_a_backlog_drains_at_the_pace_of_the_services(
    processes: Processes, scratch: Path, own_redis: servers.Private
) -> None:
    """No herd when the broker is back: the window holds, and so does each service's rate."""
    site = {
        "DJANGO_SETTINGS_MODULE": "tests.flows.outage.settings",
        "GUARD_TEST_BROKER_URL": own_redis.url,
    }
    argv = ["-m", "celery", "-A", "tests.flows.outage.site", "worker", "-l", "INFO"]
    processes._start("worker", [*argv, "--without-gossip", "--without-mingle", "-c", "4"], site)
    wait_for(WorkerPresence.objects.exists, what="the worker's report")
    own_redis.stop()
    processes.python("-m", "tests.flows.outage.web", str(JOBS), env=site)
    wait_for(lambda: traces("piled-up"), timeout=PATIENCE, what="the backlog")
    wait_for(_is_missed, timeout=60, what="somebody to miss the broker")
    calls = Job.objects.filter(dependency__in=SERVICES)
    assert not traces(SERVICES[0])
    with Watch(own_redis.url, settings.CELERY_TASK_DEFAULT_QUEUE) as watch:
        own_redis.start()
        back = time.time()
        owed = calls.exclude(state="succeeded")
        wait_for(lambda: not owed.exists(), timeout=PATIENCE, what="all calls")
    first = min(calls.values_list("started_at", flat=True)).timestamp()
    took = max(calls.values_list("finished_at", flat=True)).timestamp() - back
    pace = {
        name: [fullest(sorted(map(float, traces(name))), window) for window in (1, 10)]
        for name in SERVICES
    }
    starts = sum(calls.values_list("starts", flat=True))
    print(  # noqa: T201 - the figures, for whoever runs it with -s
        f"\n{JOBS} calls drained in {took:.1f} s, {took / LEAST:.2f} of the {LEAST:.1f} s that {RATE}/s "
        f"let them take, the first after {first - back:.1f} s; at most {watch.out} with the broker "
        f"and {watch.queued} in its queue (window {WINDOW}), {pace} calls in the fullest 1 and 10 s, "
        f"{starts / JOBS:.2f} claims a job; load {os.getloadavg()[0]:.1f}"
    )
    assert max(watch.out, watch.queued) <= WINDOW
    for second, ten in pace.values():
        assert second <= RATE * (1 + LATE) + BURST
        assert ten <= RATE * (10 + LATE) + BURST
    assert [len(traces(name)) for name in SERVICES] == [JOBS // 2] * 2
    # A wave of the window finds the services at rest; the others are placed before they are sent.
    assert starts <= 2.5 * JOBS
    assert not calls.exclude(failures=0, lost=0).exists()
    assert not Attempt.objects.exists()
    # What calls nobody did not wait for all of them.
    others = Job.objects.filter(lane="high", state="succeeded")
    assert min(others.values_list("finished_at", flat=True)).timestamp() - back < took
    if LONG:
        assert took <= 1.2 * LEAST
