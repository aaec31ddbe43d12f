"""A row number that a restored database gave out a second time: old messages meet another job."""

import uuid
from pathlib import Path
from types import SimpleNamespace

import pytest
from django.db import transaction

from celery_guard import events
from celery_guard.jobs import claiming, standing
from celery_guard.jobs.named import JOB_HEADER, NamedJob
from celery_guard.models import Job
from celery_guard.run import strangers
from celery_guard.run.owner import owner
from celery_guard.run.rescue import end_of, take_from
from tests.project.shop import tasks
from tests.project.shop.witness import traces
from tests.run.delivery import job_of, receive, send, state_of
from tests.run.marks import on_database

pytestmark = on_database


def _old_message(job: Job) -> dict[str, object]:
    # What the broker still holds of the job that had this number before the restore.
    return {**send(job), JOB_HEADER: str(NamedJob(job.pk, uuid.uuid4()))}


@pytest.mark.bar
def test_an_old_message_never_runs_as_another_job(scratch: Path, heard: list[events.Event]) -> None:
    """It is what a message of a purged job is: acknowledged, counted, not run."""
    job = job_of(tasks.mark.delay("a"))
    answer = receive(_old_message(job))
    job.refresh_from_db()
    assert (state_of(answer), job.state, job.starts, traces("a")) == ("IGNORED", "waiting", 0, [])
    assert [event.name for event in heard if event.name.startswith("run.")] == ["run.purged"]
    assert state_of(receive(send(job))) == "SUCCESS"


def test_an_old_message_is_not_told_another_jobs_end(scratch: Path) -> None:
    """The result under its task id would be somebody else's."""
    job = job_of(tasks.mark.delay("a", "secret"))
    old = _old_message(job)
    assert state_of(receive(send(job))) == "SUCCESS"
    assert state_of(receive(old)) == "IGNORED"


def test_a_number_alone_still_claims(scratch: Path) -> None:
    """Messages that an earlier release put into the broker run as they did."""
    job = job_of(tasks.mark.delay("a"))
    assert state_of(receive({**send(job), JOB_HEADER: job.pk})) == "SUCCESS"
    assert len(traces("a")) == 1


def test_a_direct_claim_compares_too(scratch: Path) -> None:
    """Eager and adopted attempts go through the same comparison."""
    job = job_of(tasks.mark.delay("a"))
    other = NamedJob(job.pk, uuid.uuid4())
    assert claiming.claim_directly("default", other, owner=owner(), lease=60) is None
    mine = NamedJob(job.pk, job.public_id)
    assert claiming.claim_directly("default", mine, owner=owner(), lease=60) is not None


def test_what_the_main_process_learns_of_an_old_message_touches_no_other_job(
    scratch: Path,
) -> None:
    """A dead child, a time limit, a revocation: each only for the job that was named."""
    job = job_of(tasks.mark.delay("a"))
    send(job)
    other = NamedJob(job.pk, uuid.uuid4())
    assert not standing.unsend("default", other)
    assert not standing.cancel("default", other)
    assert standing.look("default", other) is None
    assert claiming.claim("default", NamedJob(job.pk, job.public_id), owner=owner(), lease=60)
    assert take_from("default", other, owner()) is None
    with transaction.atomic():
        assert not end_of("default", other, owner(), "failed", "timed_out", TimeoutError())
    job.refresh_from_db()
    assert (job.state, job.fence) == ("running", 1)


def test_an_old_message_that_nobody_can_run_parks_no_other_job(scratch: Path) -> None:
    """An unknown task in an old message says nothing of the job that has its number now."""
    job = job_of(tasks.mark.delay("a"))
    old = SimpleNamespace(headers=_old_message(job))
    strangers.park_unknown(message=old, exc=KeyError("no.such.task"))
    job.refresh_from_db()
    assert job.state == "waiting"
