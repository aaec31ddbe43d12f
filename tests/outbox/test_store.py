"""A job and its message: both rows or neither, in as few statements as the database allows."""

import datetime as dt
import uuid
from typing import Any

import pytest
from django.db import connection, transaction

from celery_guard.errors import PayloadTooLarge
from celery_guard.jobs.adding import NewJob
from celery_guard.jobs.models import Job
from celery_guard.jobs.states import State
from celery_guard.outbox import portable, store
from celery_guard.outbox.capture import Captured
from celery_guard.outbox.models import OutboxMessage
from tests.enqueue.rows import counts, end, jobs, message_of

pytestmark = [pytest.mark.mariadb, pytest.mark.django_db]


def new(key: str | None = None, **values: Any) -> NewJob:
    """A job that could be added."""
    return NewJob(task="a.task", lane="medium", public_id=uuid.uuid4(), key=key, **values)


def captured(body: bytes = b"body \x00\xff") -> Captured:
    """A message that could be stored."""
    return Captured(
        task="a.task", task_id="i", args=(), kwargs={}, body=body, envelope_text="{ä}", queue="q"
    )


def test_both_rows_are_written() -> None:
    """The body byte for byte, the envelope as it is; the job waits, unsent and due."""
    job_id = store.insert("default", new("k", tenant="t", awaited=True), captured())
    (job,) = jobs()
    assert (job.pk, job.key, job.tenant, job.awaited) == (job_id, "k", "t", True)
    message = message_of(job)
    assert (bytes(message.body), message.envelope) == (b"body \x00\xff", "{ä}")
    assert (job.state, job.sent_at, job.due_at) == (State.WAITING, None, job.first_due_at)
    assert list(Job.objects.unsent()) == [job]


def test_a_taken_key_or_id_writes_neither() -> None:
    """No message without a job is ever left."""
    first = new("k")
    assert store.insert("default", first, captured()) is not None
    assert store.insert("default", new("k"), captured()) is None
    same_id = NewJob(task="b.task", lane="low", public_id=first.public_id)
    assert store.insert("default", same_id, captured()) is None
    assert counts() == (1, 1)


def test_no_key_is_taken_by_nobody() -> None:
    """NULL is not equal to NULL."""
    assert store.insert("default", new(), captured()) != store.insert("default", new(), captured())


def test_many_are_written_in_the_order_given() -> None:
    """Whatever the order in which their keys are locked; each with its own message."""
    pairs = [(new(key), captured(key.encode())) for key in ("m", "z", "a")]
    found = store.insert_many("default", pairs)
    assert [found[one.public_id] for one, _ in pairs] == [job.pk for job in jobs()]
    assert [bytes(message_of(job).body) for job in jobs()] == [b"m", b"z", b"a"]


def test_many_leave_out_what_is_there() -> None:
    """Taken keys, taken ids and duplicates among themselves."""
    taken = new("a")
    store.insert("default", taken, captured())
    pairs = [(new("a"), captured()), (new("b"), captured()), (new("b"), captured(b"second"))]
    assert list(store.insert_many("default", pairs)) == [pairs[1][0].public_id]
    assert counts() == (2, 2)


@pytest.mark.parametrize("many", [False, True])
def test_times_are_the_databases(many: bool) -> None:
    """Seconds count from now; a time in the past is now; a time to come is kept."""
    later = dt.datetime(2031, 1, 1, tzinfo=dt.UTC)
    past = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    asked = [
        new("past", due_at=past, expires_at=past),
        new("delay", delay=100.0, expires_in=200.0),
        new("later", due_at=later, expires_at=later, expires_in=5.0),
    ]
    if many:
        store.insert_many("default", [(one, captured()) for one in asked])
    else:
        for one in asked:
            store.insert("default", one, captured())
    past_job, delayed, later_job = jobs()
    assert _seconds(past_job.due_at, past_job) == pytest.approx(0, abs=5)
    assert _seconds(delayed.due_at, delayed) == pytest.approx(100, abs=5)
    assert _seconds(delayed.expires_at, delayed) == pytest.approx(200, abs=5)
    assert past_job.expires_at == past
    assert later_job.expires_at == later
    assert later_job.due_at is not None
    assert abs((later_job.due_at - later).total_seconds()) < 0.001


def _seconds(when: dt.datetime | None, job: Job) -> float:
    assert when is not None
    return (when - job.created_at).total_seconds()


def test_the_limit_is_on_the_body(settings: Any) -> None:
    """A body of just that many bytes passes."""
    settings.CELERY_GUARD = {**settings.CELERY_GUARD, "outbox": {"payload_limit": 10}}
    store.check_size(captured(b"x" * 10))
    with pytest.raises(PayloadTooLarge, match="11 bytes, the limit is 10"):
        store.check_size(captured(b"x" * 11))


def test_a_new_message_takes_the_old_ones_place() -> None:
    """The old one, which no job names any more, is gone."""
    job_id = store.insert("default", new("k"), captured())
    assert job_id is not None
    store.replace_message(job_id, captured(b"second"), "default")
    (message,) = OutboxMessage.objects.all()
    assert (bytes(message.body), message.pk) == (b"second", jobs()[0].message_id)


def test_an_ended_job_runs_again_with_its_new_message() -> None:
    """False, and nothing written, for one that is not (or no longer) ended."""
    job_id = store.insert("default", new("k"), captured())
    assert job_id is not None
    assert not store.rerun("default", job_id, new("k"), captured(b"second"))
    assert counts() == (1, 1)
    end(job_id, State.DEAD)
    Job.objects.update(failures=10, lost=3, sends=7, error="{}")
    assert store.rerun("default", job_id, new("k", delay=5.0), captured(b"third"))
    (job,) = jobs()
    assert bytes(message_of(job).body) == b"third"
    assert (job.state, job.failures, job.lost, job.sends) == (State.WAITING, 0, 0, 0)
    assert (job.error, job.finished_at, job.fence) == (None, None, 1)
    assert counts() == (1, 1)


def test_what_was_inserted_can_be_taken_back() -> None:
    """Jobs with their messages, and no others."""
    kept = store.insert("default", new("kept"), captured())
    others = store.insert_many("default", [(new("a"), captured()), (new("b"), captured())])
    store.take_back("default", others.values())
    assert [job.pk for job in jobs()] == [kept]
    assert counts() == (1, 1)


@pytest.mark.skipif(connection.vendor != "postgresql", reason="elsewhere it is the only way")
def test_the_portable_way_writes_the_same() -> None:
    """Column by column, apart from ids and times."""
    one, other = new("a", tenant="t", delay=5.0), new("b", tenant="t", delay=5.0)
    store.insert("default", one, captured())
    with transaction.atomic():
        assert portable.insert("default", other, captured()) is not None
        assert portable.insert("default", new("b"), captured()) is None
    rows = Job.objects.order_by("pk").values()
    different = {"id", "public_id", "key", "message_id", "created_at", "due_at", "first_due_at"}
    first, second = ({n: v for n, v in row.items() if n not in different} for row in rows)
    assert first == second
    assert counts() == (2, 2)
