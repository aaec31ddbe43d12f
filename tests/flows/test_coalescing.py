"""Many processes update few things while a worker runs: few runs, and the last state is seen."""

from pathlib import Path

import pytest

from celery_guard.models import Job
from tests.flows.staff import hire, wait_for_state
from tests.flows.watching import LockWatch, runs_of
from tests.kit.processes import Processes
from tests.kit.wait import wait_for
from tests.project.shop.models import Mark
from tests.project.shop.witness import open_gate, traces
from tests.run.marks import on_database
from tests.run.tasks import refresh

pytestmark = [*on_database, pytest.mark.mariadb]

CALLERS, EACH = 8, 60
UNHURRIED = {"GUARD_TEST_LEASE": "60"}
"""Nobody is killed: a heart that beats late beside so many processes is not to cost a lease."""
KEYS = ["a", "b", "c"]
COMMITTED = CALLERS * EACH // len(KEYS) * 4 // 5


def _callers(processes: Processes) -> None:
    for number in range(CALLERS):
        processes.python(
            "-m", "tests.flows.updates", f"caller-{number}", str(EACH), *KEYS,
            env={"PGAPPNAME": "caller", "DJANGO_SETTINGS_MODULE": "tests.project.settings"},
        )  # fmt: skip
    wait_for(lambda: len(traces("ready")) == CALLERS, timeout=60, what="all callers")


def _all_answered() -> bool:
    return not Job.objects.filter(state__in=("waiting", "running")).exists()


@pytest.mark.bar
def test_updates_of_few_things_are_fewruns_of(processes: Processes, scratch: Path) -> None:
    """One at a time a key; the last run sees all that was committed, and none what was undone."""
    hire(processes, concurrency=3, env=UNHURRIED)
    for key in KEYS:
        open_gate(f"refresh-{key}")
    _callers(processes)
    with LockWatch() as watch:
        open_gate("updates")
        wait_for(lambda: len(traces("done")) == CALLERS, timeout=90, what="all updates")
    wait_for(_all_answered, timeout=60, what="all requests to be answered")
    assert watch.waits == []
    for key in KEYS:
        runs = runs_of(key)
        assert runs[-1] == Mark.objects.filter(name=f"update-{key}").count()
        assert len(runs) < COMMITTED / 2
    begun = [line for key in KEYS for line in traces(f"refresh-{key}") if "undone" in line]
    assert begun == []
    assert set(Job.objects.values_list("state", flat=True)) == {"succeeded", "superseded"}
    assert Job.objects.count() == CALLERS * EACH * 4 // 5


@pytest.mark.bar
def test_all_updates_during_a_run_are_one_more_run(processes: Processes, scratch: Path) -> None:
    """However many ask while the key's job runs, exactly one follows, and it sees the last state."""
    hire(processes, concurrency=4, env=UNHURRIED)
    for key in KEYS:
        refresh.delay(key, "first")
    # Not their beginning alone: a slow one would look after the first updates.
    wait_for(lambda: all(traces(f"refreshed-{key}") for key in KEYS), what="three runs to look")
    _callers(processes)
    open_gate("updates")
    wait_for(lambda: len(traces("done")) == CALLERS, timeout=90, what="all updates")
    for key in KEYS:
        open_gate(f"refresh-{key}")
    wait_for(_all_answered, timeout=60, what="all requests to be answered")
    for key in KEYS:
        assert runs_of(key) == [0, Mark.objects.filter(name=f"update-{key}").count()]


@pytest.mark.bar
def test_a_killed_worker_leaves_no_key_taken(processes: Processes, scratch: Path) -> None:
    """kill -9 in mid-body: the slot goes with the lease, and the newest request runs."""
    first = hire(processes)
    old = refresh.delay("a", "old")
    wait_for(lambda: traces("refresh-a"), what="the body to begin")
    Mark.objects.create(name="update-a")
    new = refresh.delay("a", "new")
    first.kill()
    open_gate("refresh-a")
    hire(processes)
    wait_for_state(new, "succeeded")
    assert old.state == "SUCCESS"
    assert new.get(timeout=5) == 1
    assert [line.split()[-1] for line in traces("refresh-a")] == ["old", "new", "1"]
