"""What the claim waits for, and what it sees by itself, on PostgreSQL."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from celery.exceptions import Ignore
from django.db import connection, transaction

from celery_guard.enqueue.steering import reading
from celery_guard.enqueue.steering.turning import turn_on
from celery_guard.jobs import claiming
from celery_guard.jobs.named import NamedJob
from celery_guard.run.answer import answer
from tests.project.shop.tasks import mark
from tests.project.shop.witness import open_gate
from tests.run.delivery import deliver, job_of, receive, send, state_of
from tests.run.marks import on_database
from tests.run.tasks import in_steps, refresh

pytestmark = [
    *on_database,
    pytest.mark.skipif("connection.vendor != 'postgresql'", reason="PostgreSQL's own"),
]


def _waits_for_the_disk(job: Any) -> bool:
    waits = []

    def watch(execute: Any, sql: str, params: Any, *rest: Any) -> Any:
        if "celery_guard_claim" in sql:
            waits.append(not params[-1])
        return execute(sql, params, *rest)

    with connection.execute_wrapper(watch):
        deliver(job)
    (found,) = waits
    return bool(found)


def test_only_an_atomic_body_may_lose_its_claim(scratch: object) -> None:
    """A crash of the server undoes its claim with its work; what is done outside stays done."""
    assert not _waits_for_the_disk(job_of(mark.delay("lazy", "x")))
    assert _waits_for_the_disk(job_of(in_steps.delay("steps")))


def test_a_coalesced_body_keeps_its_slot(scratch: object) -> None:
    """One that is still at work after a crash must not meet the next run of its key."""
    open_gate("refresh-slot")
    assert _waits_for_the_disk(job_of(refresh.delay("slot")))


def test_somebody_elses_commit_still_waits(scratch: object) -> None:
    """A claim inside a transaction leaves that one's durability as it is."""
    job = job_of(mark.delay("inside", "x"))
    send(job)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL synchronous_commit = 'on'")
        claimed = claiming.claim(
            "default", NamedJob(job.pk), owner=uuid.uuid4(), lease=60, lazily=True
        )
        cursor.execute("SHOW synchronous_commit")
        assert claimed is not None
        assert cursor.fetchone() == ("on",)


def test_a_hold_counts_at_once(scratch: object) -> None:
    """Also in a process that has just read that nothing is held."""
    job = job_of(mark.delay("held at once", "x"))
    message = send(job)
    reading.forget()
    known = reading.switches("default")
    turn_on("default", action="hold", reason="r", author="me", seconds=600, task=mark.name)
    reading._known._kept["default"] = (float("inf"), known)
    try:
        assert state_of(receive(message)) == "IGNORED"
    finally:
        reading.forget()
    job.refresh_from_db()
    assert (job.state, job.reason, job.starts) == ("waiting", "paused", 0)


def test_a_hold_that_ends_meanwhile_loses_no_job(scratch: object) -> None:
    """Between the claim and the look why it failed a hold may end: then the message comes anew."""
    job = job_of(mark.delay("freed", "x"))
    send(job)
    mark.push_request(id=str(job.public_id))
    try:
        with pytest.raises(Ignore, match="the job is waiting"):
            answer(mark, NamedJob(job.pk, job.public_id))
    finally:
        mark.pop_request()
    job.refresh_from_db()
    assert (job.state, job.sent_at) == ("waiting", None)
