"""Thousands of coalesce keys of which none is due: they hold up nobody, and cost few statements."""

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from celery_guard.jobs import covering, sharing
from celery_guard.jobs.clock import in_seconds
from celery_guard.jobs.release import release
from celery_guard.models import Job, LaneLead
from celery_guard.relay.fair import Turns
from celery_guard.relay.placing import Places
from tests.factories import make_job
from tests.jobs.crowds import crowd, plain
from tests.jobs.requests import ask, ask_every, run, send
from tests.relay.ledger import lead
from tests.relay.test_fair import workers

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def postgres() -> None:
    """Rows and plans are PostgreSQL's."""
    if connection.vendor != "postgresql":
        pytest.skip("the rows are made by PostgreSQL")


def release_one() -> list[int]:
    """What one release sends where the broker has room for one job more."""
    LaneLead.objects.all().delete()
    return [sending.id for sending in release("default", lead(), 50, 1)]


@pytest.mark.bar
def test_a_plain_job_behind_a_crowd_goes_at_the_first_look(postgres: None):
    """With room for one job, and statements that do not grow with the keys one by one."""
    crowd(1500)
    behind = plain()
    with CaptureQueriesContext(connection) as captured:
        assert release_one() == [behind.pk]
    assert len(captured) < 90
    assert not Job.objects.filter(state="waiting", sent_at=None, due_at__lte=timezone.now())


@pytest.mark.bar
def test_a_look_past_the_crowd_sends_nothing_by_itself(postgres: None):
    """What is due behind it is sent as there is room; nothing else is marked."""
    crowd(300)
    due = [ask(f"due-{n}") for n in range(4)]
    assert release_one() == [due[0].pk]
    assert [job.pk for job in due if Job.objects.get(pk=job.pk).sent_at] == [due[0].pk]


def test_a_tenants_crowd_holds_up_neither_the_tenant_nor_others(
    postgres: None, monkeypatch: pytest.MonkeyPatch
):
    """The look past the keys goes along the tenant's own line, however long the lane's is."""
    monkeypatch.setattr(sharing, "HEAD", 50)
    crowd(100)
    Job.objects.filter(state="waiting").update(tenant="a")
    behind = plain()
    Job.objects.filter(pk=behind.pk).update(tenant="a")
    for _ in range(60):
        make_job(tenant="b", due_in=-600)
    turns = Turns("default", Places("default"))
    LaneLead.objects.all().delete()
    held = lead()
    sent = [s.id for _ in range(3) for s in turns.release(held, 100, workers())]
    assert behind.pk in sent
    assert len(sent) > 3


def test_the_newest_end_of_a_key_is_one_look_up_by_index(postgres: None):
    """However many finished jobs there are: no table is read, and nothing is sorted."""
    crowd(3000)
    jobs = list(Job.objects.filter(state="waiting")[:200])
    with CaptureQueriesContext(connection) as captured:
        assert len(covering.newest_ends("default", jobs)) == len(jobs)
    (query,) = captured.captured_queries
    with connection.cursor() as cursor:
        cursor.execute("EXPLAIN " + query["sql"])
        plan = "\n".join(line for (line,) in cursor.fetchall())
    assert "Index Scan Backward using celery_guard_job_coalesce" in plan
    assert "Seq Scan" not in plan
    assert "Sort" not in plan


def test_the_head_is_read_by_index(postgres: None):
    """The line of the lane, as the release reads it."""
    crowd(3000)
    with CaptureQueriesContext(connection) as captured:
        assert len(sharing.keys_at_the_head("default", "high", None, sharing.HEAD_ONLY)) == 1000
    (query,) = captured.captured_queries
    with connection.cursor() as cursor:
        cursor.execute("EXPLAIN " + query["sql"])
        plan = "\n".join(line for (line,) in cursor.fetchall())
    assert "celery_guard_job_line" in plan
    assert "Sort" not in plan


@pytest.mark.mariadb
def test_keys_of_one_pass_keep_what_is_their_own():
    """Each survivor takes over from its own key: budget, reason, due time, life, followers' turn."""
    first = ask_every(600, key="every")
    assert send() == [first.pk]
    run(first)
    every = ask_every(600, key="every")
    told: dict[str, tuple[Job, dict[str, Any]]] = {}
    for n in range(4):
        key = f"k{n}"
        ask(key, reason=("retry", "rate")[n % 2], failures=n + 1, lost=n, due_in=100.0 * (n + 1))
        ask(key, awaited=True)
        newest = ask(key, expires_in=1000.0 + n)
        told[key] = newest, {"failures": n + 1, "lost": n, "reason": ("retry", "rate")[n % 2]}
    lone = ask("lone")
    assert lone.pk in send()
    for n, (newest, expected) in enumerate(told.values()):
        newest.refresh_from_db()
        assert {name: getattr(newest, name) for name in expected} == expected
        assert newest.expires_at is None
        assert newest.due_at is not None
        assert 100 * n < (newest.due_at - timezone.now()).total_seconds() <= 100 * (n + 1)
        spoken = Job.objects.filter(survivor=newest.pk)
        assert sorted(spoken.values_list("state", "reason")) == [
            ("superseded", "coalesced"),
            ("waiting", "echo"),
        ]
    every.refresh_from_db()
    assert every.due_at is not None
    assert (every.due_at - timezone.now()).total_seconds() > 500


@pytest.mark.mariadb
def test_the_newest_end_is_the_keys_own():
    """Of the runs of its key, not of one that a database may take for equal, nor a superseded one."""
    ends = {}
    for key, ago in (("Prod", 10), ("prod", 5), ("other", 1)):
        for more in (0, 100):
            job = ask(key)
            assert send() == [job.pk]
            run(job)
            Job.objects.filter(pk=job.pk).update(finished_at=in_seconds(-ago - more))
        ends[key] = Job.objects.filter(coalesce_key=key, state="succeeded").latest("finished_at")
    folded, newest = ask("Prod"), ask("Prod")
    assert send() == [newest.pk]
    folded.refresh_from_db()
    assert folded.state == "superseded"
    waiting = [ask(key) for key in ("Prod", "prod", "other", "new")]
    found = covering.newest_ends("default", waiting)
    assert [found.get(job.pk) for job in waiting[:2]] == [
        ends["Prod"].finished_at,
        ends["prod"].finished_at,
    ]
    assert waiting[3].pk not in found
