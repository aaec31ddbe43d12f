"""Eight processes update the same things in a burst; ``GUARD_TEST_BURST=10000`` for the full form."""

import os
import time
from pathlib import Path

import pytest
from django.db.models import Max, Min

from celery_guard.models import Job, WorkerPresence
from tests.flows.staff import hire
from tests.flows.watching import LockWatch, runs_of
from tests.kit.processes import Processes
from tests.kit.wait import wait_for
from tests.project.shop.models import Mark
from tests.project.shop.witness import open_gate, traces
from tests.run.marks import on_database
from tests.run.tasks import SELDOM

pytestmark = [*on_database, pytest.mark.timeout(900)]

CALLERS = 8
UPDATES = int(os.environ.get("GUARD_TEST_BURST", "320"))
KEYS = [f"k{n}" for n in range(max(8, UPDATES // 100))]
EACH = UPDATES // CALLERS
PATIENCE = 60 + UPDATES / 20


def _all_answered() -> bool:
    return not Job.objects.filter(state__in=("waiting", "running")).exists()


@pytest.mark.bar
def test_a_burst_is_few_runs_of_each_key(processes: Processes, scratch: Path) -> None:
    """At most one in a period and one at the end, never two at once; nobody waits for a lock."""
    hire(processes, concurrency=3)
    wait_for(WorkerPresence.objects.exists, what="the worker's report")
    for number in range(CALLERS):
        processes.python(
            "-m", "tests.flows.updates", f"caller-{number}", str(EACH), *KEYS,
            env={
                "PGAPPNAME": "caller",
                "DJANGO_SETTINGS_MODULE": "tests.project.settings",
                "GUARD_TEST_ASK": "refresh_seldom",
            },
        )  # fmt: skip
    wait_for(lambda: len(traces("ready")) == CALLERS, timeout=60, what="all callers")
    with LockWatch() as watch:
        began = time.monotonic()
        open_gate("updates")
        wait_for(lambda: len(traces("done")) == CALLERS, timeout=PATIENCE, what="all updates")
        burst = time.monotonic() - began
    wait_for(_all_answered, timeout=PATIENCE, what="all requests to be answered")
    drained = time.monotonic() - began
    counts = [len(runs) for runs in map(runs_of, KEYS)]
    print(  # noqa: T201 - the figures, for whoever runs it with -s
        f"{EACH * CALLERS} updates of {len(KEYS)} keys in {burst:.1f} s, answered after "
        f"{drained:.1f} s: {min(counts)} to {max(counts)} runs a key, {sum(counts)} in all, "
        f"{len(watch.waits)} waits for a lock in {watch.looks} looks"
    )
    assert watch.waits == []
    committed = Job.objects.aggregate(first=Min("created_at"), last=Max("created_at"))
    period = (committed["last"] - committed["first"]).total_seconds()
    for key in KEYS:
        runs = runs_of(key)
        assert runs[-1] == Mark.objects.filter(name=f"update-{key}").count()
        assert len(runs) <= 2 + period // SELDOM
        assert not [line for line in traces(f"refresh-{key}") if "undone" in line]
    assert set(Job.objects.values_list("state", flat=True)) == {"succeeded", "superseded"}
    assert Job.objects.count() == Mark.objects.filter(name__startswith="update-").count()
