"""The purge: what has ended long ago goes, in steps; what has not ended never does."""

import json
from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import call_command
from django.utils import timezone

from celery_guard.models import Attempt, Duty, Job, OutboxMessage
from celery_guard.relay import purge
from celery_guard.relay.purge import Purged, count, purge_a_little, walk
from tests.factories import make_job

pytestmark = pytest.mark.django_db(transaction=True)
HOUR, DAY = 3600.0, 86400.0


def ended(state: str, seconds_ago: float, key: str | None = "k") -> Job:
    when = timezone.now() - timedelta(seconds=seconds_ago)
    number = Job.objects.count()
    job = make_job(task=f"t{number}", key=key)
    Job.objects.filter(pk=job.pk).update(
        state=state, due_at=None, finished_at=when, result='"kept"', error="{}"
    )
    Attempt.objects.create(job=job, number=1, outcome="retry", reason="x", ended_at=when)
    return job


def test_payloads_go_after_their_retention_and_keys_stay():
    """OB-22: succeeded after 72 h, all others after 30 d; the row remains as the key's memory."""
    old = [ended("succeeded", 73 * HOUR), ended("failed", 31 * DAY), ended("cancelled", 31 * DAY)]
    new = [ended("succeeded", 71 * HOUR), ended("failed", 29 * DAY), ended("dead", 73 * HOUR)]
    assert walk("default", 0) == (0, Purged(payloads=3, rows=0))
    for job in old:
        job.refresh_from_db()
        assert (job.message_id, job.result, job.error) == (None, None, None)
        assert job.key == "k"
    assert OutboxMessage.objects.count() == len(new)
    assert Attempt.objects.count() == len(new)
    assert Job.objects.exclude(message=None).count() == len(new)


def test_jobs_without_a_key_go_whole():
    """Nothing has to be remembered of them: row, message and history end together."""
    ended("succeeded", 73 * HOUR, key=None)
    assert walk("default", 0)[1] == Purged(payloads=0, rows=1)
    assert (Job.objects.count(), OutboxMessage.objects.count(), Attempt.objects.count()) == (
        0,
        0,
        0,
    )


@pytest.mark.mariadb
def test_a_run_is_remembered_for_its_period():
    """``coalesce(every=…)`` counts from its end: the row stays so long, without its payload."""
    old = [ended("succeeded", 73 * HOUR, key=None) for _ in range(3)]
    for job, period in zip(old, (7 * DAY, -7 * DAY, HOUR), strict=True):
        Job.objects.filter(pk=job.pk).update(max_due_at=job.created_at - timedelta(seconds=period))
    assert walk("default", 0)[1] == Purged(payloads=1, rows=2)
    kept = Job.objects.get()
    assert (kept.pk, kept.message_id) == (old[0].pk, None)
    Job.objects.update(finished_at=timezone.now() - timedelta(days=91))
    assert walk("default", 0)[1] == Purged(payloads=0, rows=1)


def test_superseded_jobs_go_within_the_hour():
    """Whole, with their messages: another job speaks for them. Who is waited for is an echo."""
    ended("superseded", 0.6 * HOUR, key=None)
    kept = ended("superseded", 0.4 * HOUR, key=None)
    echo = make_job(reason="echo", awaited=True, survivor=kept)
    assert walk("default", 0)[1] == Purged(payloads=0, rows=1)
    assert set(Job.objects.values_list("pk", flat=True)) == {kept.pk, echo.pk}
    assert OutboxMessage.objects.count() == 2


def test_superseded_jobs_stay_while_their_survivor_has_not_ended():
    """They step in for it when it is cancelled, also after an outage of some hours."""
    old = ended("superseded", 9 * HOUR, key=None)
    survivor = make_job()
    Job.objects.filter(pk=old.pk).update(survivor=survivor)
    assert walk("default", 0)[1] == Purged()
    assert count("default") == Purged()
    Job.objects.filter(pk=survivor.pk).update(
        state="cancelled", due_at=None, finished_at=timezone.now()
    )
    assert walk("default", 0)[1] == Purged(rows=1)


def test_keys_are_forgotten_after_ninety_days():
    """The tombstone goes last, whether its payload went before or not."""
    ended("succeeded", 91 * DAY)
    stripped = ended("failed", 91 * DAY)
    Job.objects.filter(pk=stripped.pk).update(message=None)
    ended("succeeded", 89 * DAY)
    assert walk("default", 0)[1] == Purged(payloads=1, rows=2)
    assert Job.objects.count() == 1


def test_what_has_not_ended_is_never_touched():
    """A job that waits for months is owed as on its first day."""
    job = make_job()
    past = timezone.now() - timedelta(days=400)
    Job.objects.filter(pk=job.pk).update(created_at=past, first_due_at=past, due_at=past)
    assert walk("default", 0)[1] == Purged()
    assert OutboxMessage.objects.exists()


def test_the_walk_goes_on_where_it_stopped_and_starts_over(monkeypatch):
    """A round of the duty is bounded; the place is kept on its row, gaps are jumped over."""
    monkeypatch.setattr(purge, "RANGE", 2)
    monkeypatch.setattr(purge, "SPEND", -1.0)
    jobs = [ended("succeeded", 73 * HOUR) for _ in range(5)]
    Duty.objects.create(name="purge")
    places = []
    for _ in range(4):
        purge_a_little("default")
        places.append(Duty.objects.get(name="purge").cursor)
    assert places == [jobs[1].pk, jobs[3].pk, jobs[4].pk, 0]
    assert not Job.objects.exclude(message=None).exists()


def test_steps_are_small(monkeypatch):
    """However much has ended, one transaction changes at most so many rows."""
    monkeypatch.setattr(purge, "STEP", 2)
    for _ in range(5):
        ended("succeeded", 73 * HOUR)
    assert walk("default", 0)[1] == Purged(payloads=5)


def test_the_command_counts_before_it_removes():
    """A dry run says what would go and changes nothing; the real run does just that."""
    ended("succeeded", 73 * HOUR)
    ended("succeeded", 73 * HOUR, key=None)
    would = StringIO()
    call_command("guard_purge", "--dry-run", "--json", stdout=would)
    assert json.loads(would.getvalue()) == {"payloads": 1, "rows": 1}
    assert Job.objects.count() == 2
    did = StringIO()
    call_command("guard_purge", "--json", stdout=did)
    assert json.loads(did.getvalue()) == {"payloads": 1, "rows": 1}
    assert count("default") == Purged()
    text = StringIO()
    call_command("guard_purge", stdout=text)
    assert text.getvalue() == "0 payloads emptied, 0 rows removed\n"
