"""``batch()`` and ``enqueue_many`` write all or nothing, in one statement, in the order asked."""

import contextlib
from typing import Any

import pytest
from celery import group
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from celery_guard import batch, enqueue_many
from celery_guard.errors import KeyConflict, MissingKey, NotSerializable, WrongDatabase
from celery_guard.jobs.states import State
from tests.enqueue.rows import counts, end, headers_of, jobs, keys
from tests.enqueue.sessions import Undo, undone
from tests.enqueue.tasks import bound, elsewhere, high, keyed, plain, returned, silent, unkeyed
from tests.project.shop.models import Mark

pytestmark = [
    pytest.mark.mariadb,
    pytest.mark.django_db(databases=["default", "other"]),
]


def test_all_are_written_at_the_end_in_the_order_asked() -> None:
    """Inside the block nothing is there yet; afterwards everything, in order of the calls."""
    names = ["c", "a", "b"]
    with batch():
        handles = [keyed.delay(name) for name in names]
        assert counts() == (0, 0)
    assert keys() == [f"keyed:{name}" for name in names]
    assert [handle.job.key for handle in handles] == keys()
    assert [headers_of(job)["id"] for job in jobs()] == [handle.id for handle in handles]
    assert all(handle.created for handle in handles)


def test_many_signatures_give_their_handles_in_order() -> None:
    """``enqueue_many`` takes any signatures, with their options."""
    asked = [keyed.s("b"), high.s("a").set(countdown=60), unkeyed.s(1), unkeyed.s(1)]
    handles = enqueue_many(iter(asked))
    assert [handle.job.task for handle in handles] == [s.task for s in asked]
    assert [handle.job.reason for handle in handles] == ["new", "eta", "new", "new"]
    assert [job.task for job in jobs()] == [keyed.name, unkeyed.name, unkeyed.name, high.name]


def test_nothing_asked_nothing_done() -> None:
    """An empty batch is no statement."""
    with CaptureQueriesContext(connection) as asked:
        assert enqueue_many([]) == []
    assert len(asked) == 0


def test_an_error_in_the_block_leaves_nothing() -> None:
    """Whatever was asked for before the error is not written."""
    with contextlib.suppress(Undo), batch():
        keyed.delay("a")
        raise Undo
    assert counts() == (0, 0)


@pytest.mark.parametrize(
    ("ask", "error"),
    [
        (lambda: keyed.delay(None), MissingKey),
        (lambda: keyed.delay({1}), NotSerializable),
        (keyed.delay, TypeError),
    ],
)
def test_a_bad_call_is_told_at_the_call(ask: Any, error: type[Exception]) -> None:
    """Not at the end of the block; and the block may go on without it."""
    with batch():
        keyed.delay("a")
        with pytest.raises(error):
            ask()
    assert keys() == ["keyed:a"]


@pytest.mark.parametrize("in_transaction", [True, False])
def test_a_conflict_takes_everything_back(in_transaction: bool) -> None:
    """One key of the batch names other work: no job of it is written; the caller may go on."""
    keyed.delay("taken", 1)
    keyed.delay("failed")
    end(jobs()[1].pk, State.FAILED)
    many = [keyed.s("a"), keyed.s("failed"), keyed.s("taken", 2), keyed.s("b")]
    with transaction.atomic() if in_transaction else contextlib.nullcontext():
        Mark.objects.create(name="business")
        with pytest.raises(KeyConflict, match="keyed:taken"):
            enqueue_many(many)
        keyed.delay("later")
    assert sorted(keys(), key=str) == ["keyed:failed", "keyed:later", "keyed:taken"]
    # The failed job that the batch would have run again was not touched.
    assert {job.key: job.state for job in jobs()}["keyed:failed"] == State.FAILED
    assert counts() == (3, 3)
    assert Mark.objects.exists()


def test_duplicates_inside_one_batch_are_one_job() -> None:
    """The first call makes the job, the others get its handle."""
    first, second, third = enqueue_many([keyed.s("a"), keyed.s("b"), keyed.s("a", None)])
    assert (first.created, second.created, third.created) == (True, True, False)
    assert (third.id, third.public_id) == (first.id, first.public_id)
    assert counts() == (2, 2)


def test_a_conflict_inside_one_batch_takes_everything_back() -> None:
    """Two calls of one batch disagree about a key."""
    with transaction.atomic(), pytest.raises(KeyConflict):
        enqueue_many([keyed.s("b"), keyed.s("a", 1), keyed.s("a", 2)])
    assert counts() == (0, 0)


def test_jobs_that_are_there_already_are_answered_like_single_calls() -> None:
    """Known, failed, left alone, waited for: each as ``delay`` would have it."""
    known, failed = keyed.delay("known"), keyed.delay("failed")
    left = returned.delay("left")
    for job in jobs()[1:]:
        end(job.pk, State.FAILED)
    handles = enqueue_many(
        [
            keyed.s("known"),
            keyed.s("failed"),
            returned.s("left"),
            keyed.s("known").set(task_id="mine"),
            silent.s("new"),
        ]
    )
    assert [handle.created for handle in handles] == [False, False, False, False, True]
    assert [handle.id for handle in handles[:1]] == [known.id]
    assert (handles[1].public_id, handles[1].id != failed.id) == (failed.public_id, True)
    assert (handles[2].id, handles[2].job.state) == (left.id, State.FAILED)
    assert (handles[3].id, handles[3].public_id) == ("mine", known.public_id)
    assert counts() == (5, 5)


def test_a_transaction_inside_the_block_keeps_its_own_jobs() -> None:
    """What is asked for inside an inner transaction is undone with it, not written at the end."""
    with transaction.atomic(), batch():
        keyed.delay("outer")
        with undone():
            keyed.delay("undone")
            group(keyed.s("undone 1"), keyed.s("undone 2")).delay()
            enqueue_many([keyed.s("undone 3")])
            assert counts() == (4, 4)
        with transaction.atomic():
            keyed.delay("inner")
    assert sorted(keys(), key=str) == ["keyed:inner", "keyed:outer"]


def test_a_batch_in_a_batch_is_one() -> None:
    """The outermost block writes, groups inside it too."""
    with batch():
        with batch():
            keyed.delay("a")
        group(keyed.s("b"), keyed.s("c")).delay()
        assert counts() == (0, 0)
    assert keys() == ["keyed:a", "keyed:b", "keyed:c"]


def test_an_undone_batch_leaves_nothing() -> None:
    """The batch goes with the transaction around it."""
    with undone():
        enqueue_many([keyed.s("a"), keyed.s("b")])
        assert counts() == (2, 2)
    assert counts() == (0, 0)


def test_unguarded_tasks_are_not_held_back(redis_client: Any) -> None:
    """A plain task in the block is sent as ever."""
    with batch():
        plain.delay(1)
    assert counts() == (0, 0)
    assert redis_client.dbsize() > 0


def test_a_wrong_database_is_told_at_the_call() -> None:
    """The block can't mix what belongs to another database's transaction."""
    with transaction.atomic(using="other"), batch(), pytest.raises(WrongDatabase):
        keyed.delay("a")
    assert counts() == (0, 0)


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
@pytest.mark.parametrize("task", [keyed, elsewhere], ids=["default", "other"])
def test_a_batch_over_two_databases_is_all_or_nothing(task: Any) -> None:
    """A conflict on one database takes back what was written on the other."""
    enqueue_many([keyed.s("x"), elsewhere.s("x")])
    with pytest.raises(KeyConflict):
        enqueue_many([keyed.s("a"), elsewhere.s("a"), task.s("x", 1)])
    assert (keys("default"), keys("other")) == (["keyed:x"], ["elsewhere:x"])
    with transaction.atomic(), transaction.atomic(using="other"):
        with pytest.raises(KeyConflict):
            enqueue_many([keyed.s("a"), elsewhere.s("a"), task.s("x", 1)])
        keyed.delay("later")
    assert (keys("default"), keys("other")) == (["keyed:x", "keyed:later"], ["elsewhere:x"])


@pytest.mark.parametrize("order", ["given", "by task"])
def test_tasks_and_lanes_may_be_mixed(order: str) -> None:
    """Each job goes to its lane; the order holds within and across lanes."""
    asked = [high.s("a"), keyed.s("a"), high.s("b"), bound.s("a", 1), keyed.s("b")]
    if order == "by task":
        asked.sort(key=lambda signature: str(signature.task))
    enqueue_many(asked)
    assert [job.task for job in jobs()] == [signature.task for signature in asked]
    assert {job.lane for job in jobs()} == {"high", "medium"}


@pytest.mark.skipif(connection.vendor != "postgresql", reason="one statement needs CTEs")
@pytest.mark.usefixtures("switches_read")
class TestStatements:
    """How many times the database is asked."""

    def test_a_call_is_one_statement(self) -> None:
        """Job and message are written together."""
        keyed.delay("warm")
        with transaction.atomic(), CaptureQueriesContext(connection) as asked:
            keyed.delay("a")
            high.apply_async(("a",), countdown=5, expires=100)
        assert len(asked) == 2

    def test_a_call_without_a_transaction_is_one_statement(
        self, django_assert_num_queries: Any
    ) -> None:
        """Autocommit needs no BEGIN of ours."""
        with django_assert_num_queries(1):
            keyed.delay("a")

    @pytest.mark.parametrize("size", [1, 10, 300])
    def test_a_batch_is_one_statement(self, size: int) -> None:
        """Whatever its size."""
        with transaction.atomic(), CaptureQueriesContext(connection) as asked:
            enqueue_many(keyed.s(str(n)) for n in range(size))
        assert (len(asked), len(jobs())) == (1, size)

    def test_a_group_is_one_statement(self) -> None:
        """Groups and chunks are batches by themselves."""
        with transaction.atomic(), CaptureQueriesContext(connection) as asked:
            group(unkeyed.s(n) for n in range(10)).delay()
        assert (len(asked), len(jobs())) == (1, 10)

    def test_a_group_in_an_inner_transaction_is_one_statement(self) -> None:
        """The outer batch can't take its jobs, so the group is a batch of its own."""
        with transaction.atomic(), batch(), transaction.atomic():
            with CaptureQueriesContext(connection) as asked:
                group(unkeyed.s(n) for n in range(10)).delay()
            assert (len(asked), len(jobs())) == (1, 10)

    def test_a_duplicate_is_two(self) -> None:
        """The insert that did not happen, and one look."""
        keyed.delay("a")
        with transaction.atomic(), CaptureQueriesContext(connection) as asked:
            keyed.delay("a")
        assert len(asked) == 2
