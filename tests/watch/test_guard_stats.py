"""The command for people, scripts and health checks."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from celery_guard.jobs.states import State
from celery_guard.models import Attempt, Job, LaneSnapshot
from celery_guard.watch.snapshot import take_snapshot
from tests.watch.rows import aged, ended

pytestmark = [pytest.mark.django_db, pytest.mark.mariadb]


def stats(*options: str) -> tuple[str, int, str]:
    """What it printed, its exit code and its complaint."""
    printed = StringIO()
    try:
        call_command("guard_stats", *options, stdout=printed)
    except CommandError as error:
        return printed.getvalue(), error.returncode, str(error)
    return printed.getvalue(), 0, ""


def test_all_well_is_a_table_and_exit_code_0() -> None:
    """One line a lane, and the age of the measurement."""
    take_snapshot("default")
    printed, code, _ = stats()
    lines = printed.splitlines()
    assert code == 0
    assert lines[0].split()[0] == "lane"
    assert [line.split()[0] for line in lines[1:4]] == ["high", "medium", "low"]
    assert re.fullmatch(r"measured [\d.]+ s ago", lines[-1])


def test_json_is_one_object_with_every_lane() -> None:
    """Ages in seconds, nothing rounded, nothing to parse."""
    aged("high", seconds=5)
    take_snapshot("default")
    printed, code, _ = stats("--json")
    found = json.loads(printed)
    assert code == 0
    assert not found["stale"]
    assert found["lanes"][0]["name"] == "high"
    assert found["lanes"][0]["ready"] == 1
    assert found["lanes"][0]["age"] >= 5


def test_a_stale_snapshot_is_exit_code_2() -> None:
    """Whatever it says is not true any more."""
    take_snapshot("default")
    LaneSnapshot.objects.update(taken_at=timezone.now() - timedelta(hours=1))
    printed, code, complaint = stats()
    assert code == 2
    assert "1 h old" in complaint
    assert "high" in printed


def test_never_measured_is_exit_code_2() -> None:
    """A site whose workers never ran has no healthy queues."""
    printed, code, _ = stats("--json")
    assert code == 2
    assert json.loads(printed) == {"stale": True, "snapshot_age": None, "lanes": []}


def test_jobs_that_wait_where_nothing_starts_are_exit_code_1() -> None:
    """It names the lanes and why."""
    aged("high", seconds=500)
    take_snapshot("default")
    printed, code, complaint = stats()
    assert code == 1
    assert complaint == "jobs wait and nothing starts in high (no worker)"
    assert "LATE" in printed


def dead(task: str, error: str, fingerprint: str, number: int = 1) -> Job:
    """A dead letter with the attempt that ended it."""
    job = ended("high", State.FAILED, task=task)
    died(job, error, fingerprint, number)
    return job


def died(job: Job, error: str, fingerprint: str, number: int = 1) -> None:
    """One more attempt that ended the job."""
    Attempt.objects.create(
        job=job,
        number=number,
        outcome="failed",
        reason="unknown_error",
        error=error,
        fingerprint=fingerprint,
        ended_at=timezone.now(),
    )


def test_dead_letters_are_told_by_what_they_share() -> None:
    """Task, class of error and the group's mark; a message of an error is nobody's business."""
    take_snapshot("default")
    for _ in range(2):
        dead("shop.pay", "shop.Boom: card 4111", "f" * 32)
    ended("high", State.FAILED, task="shop.new", reason="unknown_task")
    printed, code, _ = stats("--dead-letters")
    lines = [line.split() for line in printed.splitlines()[-2:]]
    assert lines == [
        ["shop.pay", "2", "shop.Boom", "f" * 32],
        ["shop.new", "1", "unknown_task", "unknown_task"],
    ]
    assert (code, "4111" in printed) == (0, False)
    assert "dead_letters" not in json.loads(stats("--json")[0])
    found = json.loads(stats("--json", "--dead-letters")[0])["dead_letters"]
    assert [(g["task"], g["mark"], g["count"], g["using"]) for g in found] == [
        ("shop.pay", "f" * 32, 2, "default"),
        ("shop.new", "unknown_task", 1, "default"),
    ]


def test_without_dead_letters_it_says_so() -> None:
    """Silence could mean anything."""
    take_snapshot("default")
    assert stats("--dead-letters")[0].splitlines()[-1].startswith("no dead letters")


def test_a_job_that_died_twice_is_one_dead_letter() -> None:
    """It counts by its latest end: whoever replays a group must not find it in another."""
    take_snapshot("default")
    job = dead("shop.pay", "shop.Boom: x", "a" * 32)
    died(job, "shop.Bang: y", "b" * 32, number=2)
    found = json.loads(stats("--json", "--dead-letters")[0])["dead_letters"]
    assert [(g["error"], g["mark"], g["count"]) for g in found] == [("shop.Bang", "b" * 32, 1)]
