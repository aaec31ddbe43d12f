"""django-celery-results beside the guard: each end is stored once, outside the body's transaction."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.db.migrations.recorder import MigrationRecorder

from celery_guard.faults import arm
from celery_guard.jobs.clock import DatabaseNow
from celery_guard.models import Job
from tests.flows.staff import hire, job_of
from tests.kit.processes import Processes
from tests.kit.wait import wait_for
from tests.project.shop.models import Mark
from tests.project.shop.tasks import mark
from tests.run.tasks import asks

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.mariadb,
    pytest.mark.timeout(240),
]


@pytest.fixture
def site(processes: Processes) -> Iterator[dict[str, str]]:
    """The tables of django-celery-results, for the processes that get this environment."""
    env = {"DJANGO_SETTINGS_MODULE": "tests.flows.results_settings"}
    migrate = ["-m", "tests.project.manage", "migrate", "django_celery_results"]
    made = processes.python(*migrate, env=env)
    assert made.wait(timeout=60) == 0, made.log
    yield env
    processes.end()
    with connection.cursor() as cursor:
        for table in connection.introspection.table_names(cursor):
            if table.startswith("django_celery_results_"):
                cursor.execute(f"DROP TABLE {table}")
    MigrationRecorder.Migration.objects.filter(app="django_celery_results").delete()


def rows_of(handle: Any) -> list[str]:
    """The states in the rows of a job's task id."""
    with connection.cursor() as cursor:
        table = "django_celery_results_taskresult"
        cursor.execute(f"SELECT status FROM {table} WHERE task_id = %s", [handle.id])
        return [status for (status,) in cursor.fetchall()]


def test_canvases_end_as_celerys_own(processes: Processes, site: dict[str, str]) -> None:
    """The same values, errors and rows as of plain tasks, all read by `get`."""
    hire(processes, concurrency=2, env=site)
    caller = processes.python("-m", "tests.flows.results_caller", env=site)
    assert caller.wait(timeout=150) == 0, caller.log
    told = json.loads(caller.log.splitlines()[-1])
    assert told["ends"]["guarded"] == told["ends"]["plain"]
    assert told["rows"]["guarded"] == told["rows"]["plain"]
    assert "never ended" not in told["ends"]["plain"].values()


def test_an_end_is_stored_once_and_after_its_commit(
    processes: Processes, site: dict[str, str], scratch: Path
) -> None:
    """A worker that dies between the two has stored nothing; the next one does. A retry is one row."""
    first = hire(processes, pool="solo", env={**site, "GUARD_FAULT": f"in:{scratch}"})
    arm(scratch, "run.committed")
    handle = mark.delay("seen", "here")
    wait_for(lambda: list(scratch.glob("*.died")), timeout=40, what="its death")
    first.kill()
    assert (job_of(handle).state, rows_of(handle)) == ("succeeded", [])
    again = asks.delay("a", {"countdown": 600})
    hire(processes, env=site)
    wait_for(lambda: rows_of(handle) == ["SUCCESS"], timeout=40, what="the row of the end")
    assert Mark.objects.count() == 1
    wait_for(lambda: rows_of(again) == ["RETRY"], timeout=40, what="the row of the retry")
    Job.objects.filter(public_id=again.public_id).update(due_at=DatabaseNow())
    wait_for(lambda: rows_of(again) == ["SUCCESS"], timeout=40, what="the row of its end")
