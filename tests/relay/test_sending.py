"""Taking back: a sender's late word counts only where its own mark still stands."""

import dataclasses
import uuid
from datetime import timedelta

import pytest

from celery_guard.jobs.release import release
from celery_guard.jobs.sending import park, put_off, unsend
from celery_guard.models import Job
from tests.factories import make_job
from tests.relay.ledger import lead

pytestmark = pytest.mark.django_db(transaction=True)


def test_an_outage_uses_nothing_up():
    """What did not reach the broker waits as before: due time, sends, failures, attempts alike."""
    before = make_job(due_in=-3)
    [sending] = release("default", lead(), 1, None)
    assert unsend("default", [sending]) == 1
    after = Job.objects.get()
    assert (after.sent_at, after.due_at, after.sends) == (None, before.due_at, 0)
    assert (after.failures, after.starts, after.state) == (0, 0, "waiting")


def test_a_late_failure_report_meets_nothing():
    """OB-10, EV-06: a job that was sent again since by another leader stays as that one left it."""
    make_job()
    held = lead()
    [first] = release("default", held, 1, None)
    unsend("default", [first])
    [second] = release("default", held, 1, None)
    assert first.sent_at != second.sent_at
    assert unsend("default", [first]) == 0
    assert put_off("default", first, 60) == 0
    assert park("default", first, "?") == 0
    assert Job.objects.get().sent_at == second.sent_at


def test_a_claimed_job_is_not_taken_back():
    """A message reported as unsent that had arrived and been claimed stays with its worker."""
    job = make_job()
    [sending] = release("default", lead(), 1, None)
    Job.objects.filter(pk=job.pk).update(state="running", owner=job.public_id)
    assert unsend("default", [sending]) == 0
    assert Job.objects.get().state == "running"


def test_a_refused_message_is_due_later():
    """One message that the broker refuses is put off alone; its sendings count on."""
    job = make_job()
    [sending] = release("default", lead(), 1, None)
    assert put_off("default", sending, 60) == 1
    after = Job.objects.get()
    assert timedelta(seconds=50) < after.due_at - job.due_at < timedelta(seconds=120)
    assert (after.sends, after.sent_at, after.state) == (1, None, "waiting")


def test_an_unsendable_message_parks_its_job():
    """A poison message ends its job `failed` with a reason, message kept for replay."""
    job = make_job()
    [sending] = release("default", lead(), 1, None)
    assert park("default", sending, "it has\x00no form") == 1
    after = Job.objects.get()
    assert (after.state, after.reason) == ("failed", "unsendable")
    assert (after.due_at, after.sent_at) == (None, None)
    assert "it has no form" in after.error
    assert after.message_id == job.message_id


def test_nothing_is_taken_back_from_a_job_that_expired():
    """A sending without a time was never marked, so no report about it moves anything."""
    make_job(expires_in=-1)
    [sending] = release("default", lead(), 1, None)
    assert unsend("default", [sending]) == 0
    assert put_off("default", sending, 1) == 0
    assert Job.objects.get().state == "expired"


@pytest.mark.bar
def test_a_late_report_never_meets_a_job_that_got_the_number_later():
    """A relay may hold a batch over a restore: the row must still be the job that was sent."""
    make_job()
    [sending] = release("default", lead(), 1, None)
    old = dataclasses.replace(sending, public_id=uuid.uuid4())
    assert unsend("default", [old]) == 0
    assert put_off("default", old, 60) == 0
    assert park("default", old, "?") == 0
    assert Job.objects.get().sent_at == sending.sent_at
    assert unsend("default", [sending]) == 1
