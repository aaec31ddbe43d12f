"""A job's success, written in each of its ways: beside other writes, and with the commit."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from django.db import connection, transaction

from celery_guard.jobs import claiming, running
from celery_guard.jobs.clock import DatabaseNow, in_seconds
from celery_guard.jobs.named import NamedJob
from celery_guard.jobs.running import Hold
from celery_guard.models import Job
from tests.factories import make_job

pytestmark = pytest.mark.django_db(transaction=True)

OWN = {"id", "public_id", "message_id", "key", "running_key"}
"""What is another in each row."""
TIMES = {f.attname for f in Job._meta.concrete_fields if f.get_internal_type() == "DateTimeField"}


@pytest.fixture(autouse=True)
def _postgresql(db: None) -> None:
    if connection.vendor != "postgresql":
        pytest.skip("elsewhere there is one way")


def held(key: str) -> Hold:
    """A claimed job, with a value in every column that may have one and is not the claim's own."""
    job = make_job(key=key, tenant="seven", dependency="payments", answers=1, done=1, total=2)
    fields = {"max_due_at": in_seconds(60), "cancel_asked_at": DatabaseNow(), "error": "{}"}
    Job.objects.filter(pk=job.pk).update(sent_at=DatabaseNow(), **fields)
    claim = claiming.claim_directly(
        "default", NamedJob(job.pk, job.public_id), owner=uuid.uuid4(), lease=60.0
    )
    assert claim is not None
    Job.objects.filter(pk=job.pk).update(running_key=f"running {key}", sent_at=DatabaseNow())
    return claim.hold


def row(hold: Hold) -> dict[str, Any]:
    """What the job holds; of times whether there is one."""
    found = Job.objects.filter(pk=hold.job_id).values().get()
    cleared = {"running_key": found["running_key"] is None}
    return cleared | {
        name: value is not None if name in TIMES else value
        for name, value in found.items()
        if name not in OWN
    }


def test_both_ways_leave_the_same_row() -> None:
    """One is a statement, the other a function that commits, and each names the columns itself."""
    beside, with_commit = held("a"), held("b")
    with transaction.atomic():
        assert running.succeed(beside, result="1", reason="done")
    with transaction.atomic():
        assert running.commits_at_once(with_commit)
        assert running.succeed(with_commit, result="1", reason="done", commit=True)
    assert row(beside) == row(with_commit)
    assert row(beside)["state"] == "succeeded"
    assert row(beside)["running_key"]


def test_the_plain_way_leaves_the_same_row() -> None:
    """So does that of other databases."""
    beside, plainly = held("a"), held("b")
    with transaction.atomic():
        assert running.succeed(beside, result="1", reason="done")
        assert running._settle(plainly, state="succeeded", reason="done", result="1", error=None)
    assert row(beside) == row(plainly)
