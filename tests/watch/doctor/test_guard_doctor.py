"""The command: a healthy site is green, a sick one has exit code 1."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connections

from celery_guard.conf import guard_settings
from celery_guard.models import Job, LaneLead, WorkerPresence
from celery_guard.relay.duties import registered
from celery_guard.relay.models import Duty
from celery_guard.watch.doctor.examine import examine
from celery_guard.watch.doctor.finding import Level
from servers.processes import free_port
from tests.kit.processes import Processes
from tests.kit.site import app
from tests.kit.wait import wait_for
from tests.relay.ledger import queue_of

pytestmark = pytest.mark.django_db(transaction=True)


def doctor(*options: str) -> tuple[str, int]:
    """What it printed, and its exit code."""
    printed = StringIO()
    try:
        call_command("guard_doctor", *options, stdout=printed, no_color=True)
    except CommandError as error:
        return printed.getvalue(), error.returncode
    return printed.getvalue(), 0


def is_set_up() -> bool:
    """Whether the hosted relay leads, reports its worker, and has done every duty once."""
    done = Duty.objects.filter(done_at__isnull=False).count()
    leads = LaneLead.objects.filter(owner__isnull=False).count()
    return WorkerPresence.objects.exists() and leads >= 3 and done == len(registered())


@pytest.mark.bar
@pytest.mark.timeout(120)
def test_a_healthy_site_is_all_green(processes: Processes) -> None:
    """With a worker that hosts its relay every finding is well, and a canary ran in each lane."""
    processes.worker()
    wait_for(is_set_up, timeout=60, what="relay, report and upkeep")
    told: dict[str, Any] = {}

    def all_green() -> bool:
        # A process of its own: this one knows tasks of other tests, some of them unwise.
        command = ("-m", "tests.project.manage", "guard_doctor", "--json", "--patience", "30")
        doctors = processes.python(*command)
        code = doctors.wait(timeout=60)
        told.update(json.loads(next(line for line in doctors.log.splitlines() if line[:1] == "{")))
        return (told["healthy"], code) == (True, 0)

    try:
        # A relay that gets no processor for a second has lost its lead, and says so truly.
        wait_for(all_green, timeout=60, what="a healthy site")
    except AssertionError:
        assert [finding for finding in told["findings"] if finding["level"] != "ok"] == []
        raise
    canaries = [f["what"] for f in told["findings"] if f["what"].startswith("canary")]
    assert canaries == ["canary high", "canary medium", "canary low"]


def test_a_site_without_workers_is_a_fault_in_every_lane() -> None:
    """Exit code 1, a hint under each fault, and the canaries don't stay behind."""
    printed, code = doctor("--patience", "0")
    assert code == 1
    lines = printed.splitlines()
    for lane in ("high", "medium", "low"):
        at = next(n for n, line in enumerate(lines) if f"lane {lane}: no live worker" in line)
        assert lines[at].startswith(" FAULT ")
        assert queue_of(lane) in lines[at + 1]
        assert any(f"canary {lane}: it did not start" in line for line in lines)
    assert set(Job.objects.values_list("state", flat=True)) == {"cancelled"}


def test_without_canaries_nothing_is_written() -> None:
    """Where even a small job is too much."""
    doctor("--no-canary")
    assert not Job.objects.exists()


def test_the_start_lines_name_every_lane() -> None:
    """One pool a lane, ready to be copied."""
    printed, code = doctor("--workers")
    assert code == 0
    lines = printed.splitlines()
    assert len(lines) == 3
    assert lines[0] == f"celery -A tests.project worker -n high@%h -Q {queue_of('high')}"
    assert lines[1] == (
        f"celery -A tests.project worker -n medium@%h -Q {queue_of('medium')},"
        f"{guard_settings().control_queue}"
    )


@pytest.mark.parametrize("wrong", ["-5", "nan", "inf", "soon"])
def test_a_patience_that_is_no_time_is_refused(wrong: str) -> None:
    """Before any canary is sent."""
    with pytest.raises(CommandError, match="--patience"):
        call_command("guard_doctor", f"--patience={wrong}")
    assert not Job.objects.exists()


def test_a_script_reads_the_start_lines_by_lane() -> None:
    """The same lines as for people."""
    printed, code = doctor("--workers", "--json")
    assert code == 0
    workers = json.loads(printed)["workers"]
    assert list(workers) == ["high", "medium", "low"]
    assert list(workers.values()) == doctor("--workers")[0].splitlines()


@pytest.mark.parametrize(
    "wrong", [{"lans": {}}, {"lanes": {"high": {"window": -1}}}, {"sweep": {"every": "soon"}}]
)
def test_wrong_settings_are_a_finding(settings: Any, wrong: dict[str, Any]) -> None:
    """Nothing else can be looked at with them, and nothing is a traceback."""
    settings.CELERY_GUARD = wrong
    printed, code = doctor()
    assert code == 1
    assert "check E001" in printed
    assert "Correct the setting CELERY_GUARD" in printed


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_a_database_that_does_not_answer_ends_the_questions_to_it() -> None:
    """It is named once; nothing else is asked of it, and the broker still is."""
    connections["other"].close()
    place = connections["other"].settings_dict
    before = place["PORT"]
    place["PORT"] = str(free_port())
    try:
        found = list(examine(app, 5, ["other"]))
    finally:
        place["PORT"] = before
    assert [f.what for f in found if f.level is Level.FAULT] == ["database other"]
    assert any(finding.what == "broker" for finding in found)
