"""A purged job's row is the tombstone of its key: a late repetition starts nothing over."""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from celery_guard import batch, enqueue_many
from celery_guard.enqueue.adopt import adopt
from celery_guard.errors import KeyConflict
from celery_guard.jobs.clock import in_seconds
from celery_guard.jobs.models import Job
from celery_guard.jobs.states import State
from celery_guard.relay.purge import Purged, walk
from celery_guard.settle.models import Effect
from tests.enqueue.rows import counts, end
from tests.enqueue.tasks import keyed, returned
from tests.enqueue.test_adopt import arriving

pytestmark = [pytest.mark.mariadb, pytest.mark.django_db(transaction=True)]

DAY = 86400.0


def ended_long_ago(days: float, state: State = State.SUCCEEDED, task: Any = keyed) -> Job:
    """A keyed job that ended so many days ago and was purged accordingly."""
    task.delay("a")
    job = Job.objects.get()
    end(job.pk, state)
    Job.objects.filter(pk=job.pk).update(finished_at=in_seconds(-days * DAY))
    Effect.objects.create(
        job=job, name="charge", state="confirmed", recovery="manual", created_at=in_seconds(-1)
    )
    walk("default", 0)
    return job


def in_a_batch() -> Any:
    """Asked for inside ``batch()``."""
    with batch():
        return keyed.delay("a")


def in_a_transaction() -> Any:
    """Asked for in the transaction of a webhook's view."""
    with transaction.atomic():
        return keyed.delay("a")


@pytest.mark.parametrize(
    "ask",
    [
        lambda: keyed.delay("a"),
        lambda: keyed.apply_async(("a",), countdown=60),
        lambda: enqueue_many([keyed.s("a")])[0],
        in_a_batch,
        in_a_transaction,
    ],
    ids=["delay", "apply_async", "enqueue_many", "batch", "transaction"],
)
def test_a_late_repetition_gets_the_purged_job(ask: Callable[[], Any]) -> None:
    """A provider's webhook after 60 days: the old handle, no new row, no message."""
    old = ended_long_ago(60)
    assert counts() == (1, 0)
    handle = ask()
    assert (handle.created, handle.public_id) == (False, old.public_id)
    assert handle.job.state == State.SUCCEEDED
    assert counts() == (1, 0)


def test_a_late_message_gets_the_purged_job() -> None:
    """One that was sent by something else, or lay in a broker for weeks."""
    old = ended_long_ago(60)
    with arriving(keyed, "a", id=str(old.public_id)) as task:
        assert adopt(task, "default") == old.pk
    assert counts() == (1, 0)


def test_other_arguments_are_a_conflict_after_the_purge_too() -> None:
    """The fingerprint outlives what it was made from."""
    ended_long_ago(60)
    with pytest.raises(KeyConflict):
        keyed.delay("a", value=1)
    assert counts() == (1, 0)


def test_what_failed_long_ago_runs_again_where_the_task_wants_that() -> None:
    """The same row with the new call's message, and all that its effects have come to."""
    old = ended_long_ago(60, State.FAILED)
    handle = keyed.delay("a")
    assert (handle.created, handle.job.pk, handle.job.state) == (False, old.pk, State.WAITING)
    assert counts() == (1, 1)
    assert Effect.objects.get(job=old).state == "confirmed"


def test_what_failed_long_ago_stays_so_where_the_task_wants_that() -> None:
    """``on_failed="return"``: nothing is written."""
    old = ended_long_ago(60, State.FAILED, returned)
    handle = returned.delay("a")
    assert (handle.public_id, handle.job.state) == (old.public_id, State.FAILED)
    assert counts() == (1, 0)


def test_a_tombstone_has_its_time() -> None:
    """After ``retention.keys`` the row and its effects go, and the key names a new operation."""
    ended_long_ago(91)
    assert (counts(), Effect.objects.count()) == ((0, 0), 0)
    assert keyed.delay("a").created


def test_the_time_is_the_settings(settings: Any) -> None:
    """Whoever knows of providers that repeat themselves later keeps keys longer."""
    settings.CELERY_GUARD = {**settings.CELERY_GUARD, "retention": {"keys": 200 * DAY}}
    ended_long_ago(199)
    assert not keyed.delay("a").created
    Job.objects.update(finished_at=in_seconds(-201 * DAY))
    assert walk("default", 0)[1] == Purged(rows=1)


def test_a_tombstone_costs_a_new_key_nothing() -> None:
    """It is the row that the insert meets anyway: no statement looks for it first."""

    def statements(name: str) -> int:
        with CaptureQueriesContext(connection) as asked:
            assert keyed.delay(name).created
        return len(asked)

    keyed.delay("warm")
    before = statements("b")
    Job.objects.all().delete()
    ended_long_ago(60)
    assert statements("c") == before
