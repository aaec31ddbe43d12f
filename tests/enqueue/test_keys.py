"""A key names one operation: asked for again it is the same job, or a clear refusal."""

import decimal
import uuid
from typing import Any

import pytest
from django.db import connection, transaction

from celery_guard.errors import KeyConflict, MissingKey
from celery_guard.jobs.models import Job
from celery_guard.jobs.states import RERUNNABLE, State
from tests.enqueue.rows import counts, end, envelope_of, headers_of, jobs, keys, message_of
from tests.enqueue.tasks import app, bound, high, keyed, returned, silent, unkeyed

pytestmark = [pytest.mark.mariadb, pytest.mark.django_db]


def test_the_same_call_is_the_same_job() -> None:
    """A second enqueue of a key writes nothing and gives the first job's handle."""
    first, second = keyed.delay("a"), keyed.delay("a")
    assert (first.created, second.created) == (True, False)
    assert (second.id, second.public_id) == (first.id, first.public_id)
    assert counts() == (1, 1)


def test_other_arguments_for_a_key_are_a_conflict() -> None:
    """The same key with other arguments is refused by name, and the transaction goes on."""
    with transaction.atomic():
        keyed.delay("a", value=1)
        with pytest.raises(KeyConflict, match="keyed:a"):
            keyed.delay("a", value=2)
        keyed.delay("b")
    assert keys() == ["keyed:a", "keyed:b"]


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        (("a",), {}),
        ((), {"name": "a"}),
        (("a", None), {}),
        (("a",), {"value": None}),
        ((), {"value": None, "name": "a"}),
    ],
)
def test_calls_that_mean_the_same_are_the_same(args: Any, kwargs: Any) -> None:
    """EV-27: positions, names, their order and spelt-out defaults make no difference."""
    first = keyed.delay("a")
    again = keyed.apply_async(args, kwargs)
    assert (again.created, again.public_id) == (False, first.public_id)


def test_the_order_of_names_makes_no_difference() -> None:
    """EV-27: neither of keywords nor of the names in a dict."""
    first = keyed.delay("a", x=1, y=2, value={"p": 1, "q": 2})
    assert keyed.delay("a", y=2, x=1, value={"q": 2, "p": 1}).public_id == first.public_id


@pytest.mark.parametrize("other", [True, 1.0, "1", [1], None, decimal.Decimal(1)])
def test_values_that_python_calls_equal_are_not_the_same(other: object) -> None:
    """1, True, 1.0 and "1" are four different arguments."""
    keyed.delay("a", value=1)
    with pytest.raises(KeyConflict):
        keyed.delay("a", value=other)


def test_tasks_do_not_share_keys() -> None:
    """A key is unique per task."""
    keyed.delay("a")
    assert high.delay("a").created
    assert counts() == (2, 2)


def test_unkeyed_calls_are_all_jobs() -> None:
    """``UNKEYED``: every call is work of its own."""
    assert unkeyed.delay(1).public_id != unkeyed.delay(1).public_id
    assert [job.key for job in jobs()] == [None, None]


@pytest.mark.parametrize("length", [255 - len("keyed:"), 300, 10_000])
def test_long_keys_are_kept_apart(length: int) -> None:
    """A key longer than its column ends in a hash of the whole; two that begin alike differ."""
    for last in "xy":
        assert keyed.delay("n" * (length - 1) + last).created
    assert len({key for key in keys() if key and len(key) <= 255}) == 2
    assert not keyed.delay("n" * (length - 1) + "x").created


@pytest.mark.parametrize("name", ["", None, "a\x00b", "half \ud800", [], {}, 1.5], ids=repr)
def test_what_names_nothing_is_refused(name: Any) -> None:
    """An empty, missing, unstorable or ambiguous value makes no key; nothing is written."""
    with pytest.raises(MissingKey):
        keyed.delay(name)
    assert counts() == (0, 0)


@pytest.mark.parametrize("name", [0, False, 7, uuid.UUID(int=7), decimal.Decimal("1.10"), "ä ☃"])
def test_what_names_something_makes_a_key(name: Any) -> None:
    """Zero and False are values like any other, and text may be in any script."""
    keyed.delay(name)
    assert keys() == [f"keyed:{name}"]


def test_a_bound_task_and_its_tenant() -> None:
    """``self`` is no argument; the tenant is filled in like the key."""
    bound.delay("a", shop=7)
    (job,) = jobs()
    assert (job.key, job.tenant) == ("bound:a", "7")


@pytest.mark.parametrize("state", RERUNNABLE)
def test_a_failed_operation_runs_again(state: State) -> None:
    """``on_failed="rerun"``: the same row, with the new call's message, times and id."""
    first = keyed.delay("a")
    (old,) = jobs()
    end(old.pk, state)
    again = keyed.apply_async(("a",), countdown=100, expires=200, queue="elsewhere")
    (job,) = jobs()
    assert (job.pk, job.public_id, job.state) == (old.pk, first.public_id, State.WAITING)
    assert (again.created, again.public_id) == (False, first.public_id)
    assert headers_of(job)["id"] == again.id != first.id
    assert (job.fence, job.lane, envelope_of(job).routing_key) == (1, "elsewhere", "elsewhere")
    assert job.due_at is not None
    assert job.expires_at is not None
    assert 99 < (job.expires_at - job.due_at).total_seconds() < 101
    # The message that nobody needs any more is gone.
    assert (counts(), job.message_id) == ((1, 1), message_of(job).pk)
    # A duplicate from now on gets the id under which the result will be stored.
    assert keyed.delay("a").id == again.id


def test_an_operation_whose_payload_is_purged_runs_again() -> None:
    """The new call brings its own message."""
    keyed.delay("a")
    (old,) = jobs()
    end(old.pk, State.FAILED)
    message_of(old).delete()
    Job.objects.update(message=None)
    keyed.delay("a")
    (job,) = jobs()
    assert (job.state, message_of(job).pk) == (State.WAITING, job.message_id)


@pytest.mark.parametrize("state", RERUNNABLE)
def test_a_failed_operation_can_be_left_alone(state: State) -> None:
    """``on_failed="return"``: the handle of the ended job, and nothing changes."""
    first = returned.delay("a")
    end(jobs()[0].pk, state)
    again = returned.delay("a")
    assert (again.created, again.id, again.job.state) == (False, first.id, state)


@pytest.mark.parametrize("state", [State.SUCCEEDED, State.SUPERSEDED])
def test_a_finished_operation_stays_finished(state: State) -> None:
    """What has been done is never done again under its key."""
    first = keyed.delay("a")
    end(jobs()[0].pk, state)
    again = keyed.delay("a")
    assert (again.created, again.id, again.job.state) == (False, first.id, state)
    with pytest.raises(KeyConflict):
        keyed.delay("a", value=1)


def test_a_failed_operation_with_other_arguments_is_a_conflict() -> None:
    """Running again means the same work."""
    keyed.delay("a")
    end(jobs()[0].pk, State.FAILED)
    with pytest.raises(KeyConflict):
        keyed.delay("a", value=1)
    assert jobs()[0].state == State.FAILED


def test_a_task_id_of_ones_own_names_one_job() -> None:
    """The same id again is the same job; every handle carries the id as it was given."""
    first = unkeyed.apply_async((1,), task_id="import 7")
    second = unkeyed.apply_async((1,), task_id="import 7")
    assert (first.id, second.id, second.created) == ("import 7", "import 7", False)
    assert headers_of(jobs()[0])["id"] == "import 7"
    assert unkeyed.AsyncResult("import 7").job == jobs()[0]


def test_a_task_id_that_names_other_work_is_a_conflict() -> None:
    """Other arguments, or another task, under a used id would be lost in silence."""
    unkeyed.apply_async((1,), task_id="import 7")
    with pytest.raises(KeyConflict, match="other arguments"):
        unkeyed.apply_async((2,), task_id="import 7")
    keyed.apply_async(("a",), task_id="import 8")
    with pytest.raises(KeyConflict, match=keyed.name):
        high.apply_async(("a",), task_id="import 8")


def test_whoever_waits_for_a_duplicates_id_gets_an_echo() -> None:
    """A fixed id that somebody waits for is a row of its own, answered by the survivor."""
    first = keyed.delay("a")
    second = keyed.apply_async(("a",), task_id="mine")
    survivor, echo = sorted(jobs(), key=lambda job: job.pk)
    assert (second.id, second.created, second.public_id) == ("mine", False, first.public_id)
    assert (echo.survivor_id, echo.key, echo.awaited) == (survivor.pk, None, True)
    assert (echo.reason, headers_of(echo)["id"]) == ("echo", "mine")
    keyed.apply_async(("a",), task_id="mine")
    assert counts() == (2, 2)


def test_a_duplicate_with_a_link_keeps_its_link() -> None:
    """The link waits for this very call, whatever its id, so the call keeps a row."""
    keyed.delay("a")
    second = keyed.apply_async(("a",), link=unkeyed.s())
    echo = max(jobs(), key=lambda job: job.pk)
    assert (echo.survivor_id is not None, headers_of(echo)["id"]) == (True, second.id)


def test_a_duplicate_that_nobody_waits_for_leaves_no_echo() -> None:
    """No result, no canvas: the survivor's id is all there is to say."""
    silent.delay("a")
    silent.apply_async(("a",), task_id="mine")
    assert counts() == (1, 1)


def test_send_task_by_name_asks_for_the_same_job() -> None:
    """A service that only knows the name gets its id answered like any other caller."""
    first = keyed.delay("a")
    sent = app().send_task(keyed.name, ("a",))
    echo = max(jobs(), key=lambda job: job.pk)
    assert (headers_of(echo)["id"], echo.survivor_id) == (sent.id, first.job.pk)


@pytest.mark.xfail(
    connection.vendor == "mysql", reason="the column has the database's own collation there"
)
def test_keys_are_compared_exactly() -> None:
    """Case, accents and trailing spaces make different keys."""
    for name in ("a", "A", "á", "a "):
        assert keyed.delay(name).created
    assert counts() == (4, 4)
