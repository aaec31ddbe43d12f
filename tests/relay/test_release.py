"""Releasing: which jobs become sent, in which order, and when none do."""

import re
import threading
import uuid
from datetime import timedelta

import pytest
from django.db import connection, transaction
from django.utils import timezone

from celery_guard.jobs.release import release
from celery_guard.jobs.sending import Lead, next_due
from celery_guard.models import Job, LaneLead, OutboxMessage
from celery_guard.outbox import functions
from tests.factories import make_job
from tests.relay.ledger import lead

# 20,000 jobs with messages; one in five still waits.
_HISTORY = """
WITH message AS (
    INSERT INTO celery_guard_outboxmessage (body, envelope, created_at)
    SELECT '', '{}', now() FROM generate_series(1, 20000) RETURNING id
)
INSERT INTO celery_guard_job (public_id, task, lane, tenant, fingerprint, state, reason, plain,
    awaited, created_at, first_due_at, due_at, fence, starts, sends, failures, lost, message_id)
SELECT gen_random_uuid(), 't', 'high', '', '',
       CASE WHEN id % 5 = 0 THEN 'waiting' ELSE 'succeeded' END, '', false, false,
       now(), now(), CASE WHEN id % 5 = 0 THEN now() END, 0, 0, 0, 0, 0, id
FROM message
"""

pytestmark = pytest.mark.django_db(transaction=True)


def ids(sendings):
    return [sending.id for sending in sendings]


def test_due_jobs_become_sent_oldest_first():
    """A release marks due jobs of its lane in due order and returns them with their messages."""
    late, early = make_job(due_in=-1, args=("late",)), make_job(due_in=-9, args=("early",))
    make_job(lane="low"), make_job(due_in=60)
    sent = release("default", lead(), 10, None)
    assert ids(sent) == [early.pk, late.pk]
    assert b"early" in sent[0].body
    assert sent[0].sends == 1
    assert {s.sent_at for s in sent} == set(
        Job.objects.filter(pk__in=ids(sent)).values_list("sent_at", flat=True)
    )


def test_a_batch_shares_one_sending_time():
    """Batch mates are neither earlier nor later than each other, so none can accuse another."""
    for _ in range(3):
        make_job()
    assert len({s.sent_at for s in release("default", lead(), 10, None)}) == 1


def test_a_sent_job_is_not_released_again():
    """`sent_at` is the sender's claim: the next release passes the row over."""
    make_job()
    held = lead()
    assert len(release("default", held, 10, None)) == 1
    assert release("default", held, 10, None) == []


def test_the_batch_bounds_a_release():
    """No more rows than asked for, and the oldest of them."""
    jobs = [make_job(due_in=-9 + n) for n in range(5)]
    assert ids(release("default", lead(), 2, None)) == [jobs[0].pk, jobs[1].pk]


def test_the_window_counts_sent_and_running_jobs():
    """The broker holds at most `window` unfinished jobs of a lane."""
    held = lead()
    for _ in range(6):
        make_job()
    assert len(release("default", held, 10, 4)) == 4
    assert release("default", held, 10, 4) == []
    done = Job.objects.filter(sent_at__isnull=False).values_list("pk", flat=True)[:1]
    Job.objects.filter(pk__in=list(done)).update(
        state="succeeded", sent_at=None, due_at=None, finished_at=timezone.now()
    )
    assert len(release("default", held, 10, 4)) == 1


@pytest.mark.parametrize("change", [{"owner": uuid.uuid4()}, {"term": 99}])
def test_a_lost_lead_releases_nothing(change):
    """All of a leader's writes compare owner and term: after a change of either, no row moves."""
    make_job()
    held = lead()
    LaneLead.objects.filter(lane="high").update(**change)
    assert release("default", held, 10, None) == []
    assert Job.objects.get().sent_at is None


def test_an_expired_lead_releases_nothing():
    """A leader that slept past its lease does nothing until it has renewed."""
    make_job()
    held = lead()
    LaneLead.objects.filter(lane="high").update(lead_until=timezone.now() - timedelta(seconds=1))
    assert release("default", held, 10, None) == []


def test_an_expired_job_ends_instead_of_being_sent():
    """A job past its expiry by the database's clock becomes `expired` and counts no sending."""
    job, alive = make_job(expires_in=-1), make_job(expires_in=60)
    sent = release("default", lead(), 10, None)
    assert {(s.id, s.state, s.sent_at is None) for s in sent} == {
        (job.pk, "expired", True),
        (alive.pk, "waiting", False),
    }
    job.refresh_from_db()
    assert (job.state, job.reason, job.due_at, job.sends) == ("expired", "expired", None, 0)
    assert '"state": "expired"' in job.error
    assert job.finished_at


def test_a_row_locked_by_another_session_is_passed_over():
    """OB-19: a lock held elsewhere delays that job, not its neighbours, and raises nothing."""
    locked, free = make_job(due_in=-2), make_job(due_in=-1)
    held = lead()
    is_locked, done = threading.Event(), threading.Event()

    def hold():
        with transaction.atomic():
            Job.objects.select_for_update().get(pk=locked.pk)
            is_locked.set()
            done.wait(20)
        connection.close()

    holder = threading.Thread(target=hold)
    holder.start()
    try:
        assert is_locked.wait(20)
        assert ids(release("default", held, 10, None)) == [free.pk]
    finally:
        done.set()
        holder.join()
    assert ids(release("default", held, 10, None)) == [locked.pk]


def test_a_job_without_its_message_is_still_returned():
    """A message that is gone is reported as such, so that its job can be parked, not lost."""
    make_job()
    OutboxMessage.objects.all().delete()
    [sending] = release("default", lead(), 10, None)
    assert (sending.envelope, sending.body) == (None, b"")


def test_two_leaders_at_once_never_send_one_job_twice():
    """Even with two believed leads, a row is released by one statement only."""
    for _ in range(40):
        make_job()
    held = lead()
    start = threading.Barrier(4)
    found = []

    def drain():
        start.wait()
        while batch := release("default", held, 3, None):
            found.extend(ids(batch))
        connection.close()

    threads = [threading.Thread(target=drain) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert len(found) == len(set(found)) == 40


def test_next_due_tells_the_time_to_the_first_unsent_job():
    """Seconds until something is due, by the database's clock; no entry where nothing waits."""
    make_job(due_in=50), make_job(due_in=30), make_job(lane="low", due_in=-5)
    due = next_due("default", ["high", "low", "medium"])
    assert 25 < due["high"] <= 30
    assert due["low"] <= -5
    assert "medium" not in due


def test_next_due_takes_any_name_of_a_lane():
    """A queue outside all lanes is a lane by its name, whatever that is made of."""
    name = 'o\'dd \\ "{,}" ü'
    make_job(lane=name, due_in=-5)
    assert set(next_due("default", [name, "low"])) == {name}


@pytest.mark.parametrize("full", [False, True])
def test_what_is_due_next_is_one_look_into_the_index_a_lane(full: bool):
    """Also by the plan that a session has made while there was no history."""
    if connection.vendor != "postgresql":
        pytest.skip("the statement is PostgreSQL's")
    text = functions.text_of("next_due_1")
    query = text[text.index("SELECT asked") : text.index(";\nEND")].replace("its_lanes", "$1")
    with transaction.atomic(), connection.cursor() as cursor:
        if full:
            cursor.execute(_HISTORY)
        cursor.execute("ANALYZE celery_guard_job")
        cursor.execute("SET LOCAL plan_cache_mode = force_generic_plan")
        cursor.execute("SET LOCAL enable_seqscan = off")
        cursor.execute("SET LOCAL enable_bitmapscan = off")
        cursor.execute(f"PREPARE next_due (text) AS {query}")
        cursor.execute("EXPLAIN EXECUTE next_due (NULL)")
        plan = "\n".join(row[0] for row in cursor.fetchall())
        cursor.execute("DEALLOCATE next_due")
    assert "Seq Scan" not in plan, plan
    assert "Sort" not in plan, plan
    assert plan.count("using celery_guard_job_line") == 1, plan


@pytest.mark.parametrize("full", [False, True])
def test_the_release_reads_the_index_in_order_whatever_the_window(full: bool):
    """The plan stays a short index range and look-ups by id, however much history there is.

    Also the one that a session has made while there was none.
    """
    if connection.vendor != "postgresql":
        pytest.skip("the statement is PostgreSQL's")
    text = functions.text_of("release_2")
    query = text[text.index("WITH picked") : text.index(";\nEND")]
    kinds = {
        "its_lane": "text",
        "its_owner": "uuid",
        "its_term": "integer",
        "batch": "integer",
        "room": "integer",
        "alone": "boolean",
        "expired": "text",
        "moment": "timestamptz",
    }
    for place, name in enumerate(kinds, 1):
        query = re.sub(rf"(?<![.'])\b{name}\b(?!')", f"${place}", query)
    with transaction.atomic(), connection.cursor() as cursor:
        if full:
            cursor.execute(_HISTORY)
        cursor.execute("ANALYZE celery_guard_job, celery_guard_outboxmessage")
        # The plan that a function keeps: made without knowing what it is asked for.
        cursor.execute("SET LOCAL plan_cache_mode = force_generic_plan")
        cursor.execute("SET LOCAL enable_seqscan = off")
        cursor.execute("SET LOCAL enable_bitmapscan = off")
        cursor.execute(f"PREPARE released ({', '.join(kinds.values())}) AS {query}")
        cursor.execute(f"EXPLAIN EXECUTE released ({', '.join(['NULL'] * len(kinds))})")
        plan = "\n".join(row[0] for row in cursor.fetchall())
        cursor.execute("DEALLOCATE released")
    assert "Merge" not in plan, plan
    assert "Seq Scan" not in plan, plan
    assert "Bitmap" not in plan, plan
    assert plan.count("using celery_guard_job_line") == 2, plan


def test_a_lead_names_its_lane_owner_and_term():
    """The value that rooms pass on can't be changed under them."""
    held = lead()
    with pytest.raises(AttributeError):
        held.term = 5
    assert held == Lead(lane="high", owner=held.owner, term=1)


def test_a_release_leaves_the_connections_durability_alone():
    """Only the mark itself may be lost in a crash; what follows on the connection commits fully."""
    if connection.vendor != "postgresql":
        pytest.skip("PostgreSQL's setting")
    make_job()
    release("default", lead(), 1, None)
    with connection.cursor() as cursor:
        cursor.execute("SHOW synchronous_commit")
        assert cursor.fetchone() == ("on",)
