"""One plain call takes the shortest way, and writes what the long one would."""

import contextlib
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from celery import signals
from django.db import IntegrityError, connection, transaction

from celery_guard import batch
from celery_guard.enqueue import alone
from celery_guard.enqueue.admission.models import Reservation
from celery_guard.enqueue.admission.places import Place, hold, holding
from celery_guard.enqueue.steering.reading import forget
from celery_guard.enqueue.steering.turning import turn_off, turn_on
from celery_guard.enqueue.tenants import acting_for
from celery_guard.errors import KeyBusy, KeyConflict, MissingKey, WrongDatabase
from celery_guard.jobs.clock import in_seconds
from celery_guard.jobs.models import Job
from celery_guard.outbox import store
from celery_guard.outbox.capture import capture_everything, collecting
from tests.enqueue.rows import celery_settings, counts, end, jobs
from tests.enqueue.tasks import app, bound, elsewhere, keyed, returned, silent, unkeyed
from tests.enqueue.test_many import row

pytestmark = [
    pytest.mark.skipif("connection.vendor != 'postgresql'", reason="PostgreSQL's own"),
    pytest.mark.django_db(databases=["default", "other"], transaction=True),
]


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The ids of the calls that went the short way."""
    went: list[Any] = []
    insert = store.insert_due

    def note(connection: Any, values: Any, place: int | None = None) -> int | None:
        went.append(values[0])
        return insert(connection, values, place)

    monkeypatch.setattr(store, "insert_due", note)
    return went


@contextlib.contextmanager
def listened_to() -> Iterator[None]:
    """Somebody is told of each message."""

    def told(**_: Any) -> None: ...

    signals.before_task_publish.connect(told)
    try:
        yield
    finally:
        signals.before_task_publish.disconnect(told)


CALLS = [
    (bound, ("a", 1), {}),
    (bound, ("%s {0} %(id)s", 2), {}),
    (bound, ("a",), {"shop": 2}),
    (returned, ("a",), {"value": 0}),
    (silent, ("a",), {}),
    (unkeyed, (None,), {}),
    (unkeyed, (), {}),
]


@pytest.mark.parametrize(("task", "args", "kwargs"), CALLS)
@pytest.mark.parametrize("inside", [True, False])
def test_the_rows_are_those_of_the_long_way(
    short: list[Any], task: Any, args: Any, kwargs: Any, inside: bool
) -> None:
    """Byte for byte, in a transaction and without one; the handle names the job."""
    with transaction.atomic() if inside else contextlib.nullcontext():
        handle = task.delay(*args, **kwargs)
    (job,) = jobs()
    assert short == [handle.id]
    assert (handle.created, handle.public_id, handle.job) == (True, job.public_id, job)
    assert (handle.using, handle.lane) == ("default", job.lane)
    assert job.due_at == job.first_due_at == job.created_at
    written = row(job)
    job.delete()
    with listened_to():
        task.delay(*args, **kwargs)
    assert len(short) == 1
    assert [row(one) for one in jobs()] == [written]


@pytest.mark.parametrize("value", [[1], 1.5, "é", "it's", b"x", uuid.UUID(int=1)])
def test_what_needs_a_look_goes_the_long_way(short: list[Any], value: Any) -> None:
    """Values that are not the same text for Python and JSON."""
    keyed.delay("a", value)
    unkeyed.delay(value)
    assert (short, counts()) == ([], (2, 2))


@pytest.mark.parametrize(
    "options", [{"countdown": 5}, {"task_id": str(uuid.uuid4())}, {"priority": 3}, {"queue": "low"}]
)
def test_a_call_that_says_more_goes_the_long_way(short: list[Any], options: Any) -> None:
    """Only what ``delay`` can say is known."""
    unkeyed.apply_async((1,), **options)
    assert (short, counts()) == ([], (1, 1))


@contextlib.contextmanager
def refusing() -> Iterator[None]:
    """A switch refuses another tenant."""
    terms: Any = {"action": "refuse", "reason": "r", "author": "me", "seconds": 90}
    switch = turn_on("default", tenant="another", **terms)
    try:
        yield
    finally:
        turn_off("default", [switch.pk], by="me")
        forget()


@pytest.mark.parametrize("around", [listened_to, refusing, capture_everything, collecting])
def test_whatever_could_make_a_difference_is_looked_at(short: list[Any], around: Any) -> None:
    """The long way asks each of them what it says of this call."""
    with around():
        bound.delay("a", 1)
    assert short == []


def a_place(**terms: Any) -> Place:
    """Room for one call of ``bound`` for the tenant 1, and its reservation."""
    kept = Reservation.objects.create(lane="medium", tenant="1", until=in_seconds(60))
    return Place(
        using="default",
        task=bound.name,
        lane="medium",
        tenant="1",
        id=kept.pk,
        options=terms,
        forget_at=time.monotonic() + 60,
    )


@pytest.mark.parametrize("inside", [True, False])
def test_a_place_is_used_up(short: list[Any], inside: bool) -> None:
    """A call that was admitted consumes what it was given, in the statement that writes its job."""
    with holding():
        hold(place := a_place())
        with transaction.atomic() if inside else contextlib.nullcontext():
            handle = bound.delay("a", 1)
        assert (short, place.spent) == ([handle.id], True)
    assert (Reservation.objects.count(), counts()) == (0, (1, 1))


def test_a_place_of_another_stays(short: list[Any]) -> None:
    """A call for which none was kept is one like any other."""
    with holding():
        hold(place := a_place())
        bound.delay("a", 2)
        assert (len(short), place.spent, Reservation.objects.count()) == (1, False, 1)


def test_a_place_on_terms_goes_the_long_way(short: list[Any]) -> None:
    """They change the message."""
    with holding():
        hold(a_place(countdown=60))
        handle = bound.delay("a", 1)
    assert (short, Reservation.objects.count()) == ([], 0)
    assert handle.job.due_at > handle.job.created_at


def test_a_batch_takes_its_places_together(short: list[Any]) -> None:
    """A call that it collects is not written yet."""
    with holding(), batch():
        hold(place := a_place())
        bound.delay("a", 1)
        assert not place.spent
    assert (short, place.spent, Reservation.objects.count()) == ([], True, 0)


def test_an_eager_call_runs(short: list[Any]) -> None:
    """Celery's setting counts from one call to the next."""
    with celery_settings(app(), task_always_eager=True):
        unkeyed.delay(1)
    assert (short, [job.state for job in jobs()]) == ([], ["succeeded"])
    unkeyed.delay(1)
    assert (len(short), counts()) == (1, (2, 2))


def test_a_batch_writes_it(short: list[Any]) -> None:
    """With all others, at its end."""
    with batch():
        handle = bound.delay("a", 1)
        assert counts() == (0, 0)
    assert (short, handle.created, handle.job.key) == ([], True, "bound:a")


def test_a_taken_key_is_answered_with_its_job(short: list[Any]) -> None:
    """The same work is found, other arguments are refused, an ended job runs anew."""
    first = bound.delay("a", 1)
    again = bound.delay("a", 1)
    assert (again.created, again.public_id, again.id) == (False, first.public_id, first.id)
    with pytest.raises(KeyConflict):
        bound.delay("a", 2)
    end(first.job.pk, "failed")
    anew = bound.delay("a", 1)
    assert (anew.created, anew.public_id, anew.job.state) == (False, first.public_id, "waiting")
    assert anew.id != first.id
    assert (len(short), counts()) == (4, (1, 1))


def test_a_key_that_was_purged_meanwhile_is_written_again(
    short: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the insert that found it and the look-up; not for ever."""
    bound.delay("a", 1)
    monkeypatch.setattr(alone, "find_known", lambda *_: Job.objects.all().delete() and None)
    assert bound.delay("a", 1).created
    monkeypatch.setattr(alone, "find_known", lambda *_: None)
    with pytest.raises(KeyBusy, match="comes and goes"):
        bound.delay("a", 1)


def test_a_fault_is_told_as_ever() -> None:
    """Before anything is written."""
    with pytest.raises(MissingKey):
        bound.delay("", 1)
    with pytest.raises(TypeError):
        bound.delay("a")
    with transaction.atomic(using="other"), pytest.raises(WrongDatabase):
        bound.delay("a", 1)
    with transaction.atomic(), pytest.raises(WrongDatabase):
        elsewhere.delay("a")
    assert counts() == (0, 0)


def test_the_tenant_is_that_of_each_call() -> None:
    """What is kept for one tenant's calls is not another's."""
    for tenant in ("one", "two", "one", ""):
        with acting_for(tenant):
            unkeyed.delay(1)
    assert [job.tenant for job in jobs()] == ["one", "two", "one", ""]


def test_an_id_that_is_there_is_an_error() -> None:
    """It was made for this call: two the same are no key that is taken."""
    draft = ("i", "t", "k", "", "medium", "", False, "", b"", "{}")
    values = (str(uuid.uuid4()), *draft[1:])
    assert store.insert_due(connection, values) is not None
    with pytest.raises(IntegrityError), transaction.atomic():
        store.insert_due(connection, (*values[:2], "other", *values[3:]))
