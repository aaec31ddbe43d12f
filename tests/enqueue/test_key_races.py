"""Many sessions ask for one key at the same time, and some of them roll back."""

import secrets
import threading
from concurrent.futures import Future

import pytest
from django.db import connection, transaction
from django.db.transaction import TransactionManagementError

from celery_guard.enqueue.handle import JobHandle
from celery_guard.enqueue.many import enqueue_many
from celery_guard.errors import KeyBusy
from celery_guard.jobs.states import State
from tests.enqueue.rows import counts, end, jobs, keys
from tests.enqueue.sessions import LONG, apart, is_waiting_for_a_lock, limit_lock_waits, wait
from tests.enqueue.tasks import keyed
from tests.kit.wait import wait_for
from tests.project.shop.models import Mark

pytestmark = [pytest.mark.mariadb, pytest.mark.django_db(transaction=True)]

CROWD = 20


@pytest.fixture
def fresh() -> str:
    """The beginning of names of one's own: MariaDB locks around keys that were deleted before."""
    return secrets.token_hex(4)


class Holder:
    """A session that asks for a key and keeps its transaction open until it is told to end."""

    def __init__(self, *names: str) -> None:
        self.holds = threading.Event()
        self._ends = threading.Event()
        self._commits = True
        self._names = names
        self._done = apart(self._run)
        wait(self.holds)

    def _run(self) -> None:
        try:
            with transaction.atomic():
                for name in self._names:
                    keyed.delay(name)
                self.holds.set()
                wait(self._ends)
                transaction.set_rollback(not self._commits)
        finally:
            self.holds.set()

    def end(self, *, commits: bool) -> None:
        """Let it commit or roll back."""
        self._commits = commits
        self._ends.set()
        self._done.result(LONG)


@pytest.mark.parametrize("in_transaction", [True, False])
def test_a_crowd_makes_one_job(in_transaction: bool) -> None:
    """Twenty sessions at a barrier, one key: one job, one message, one created handle."""
    barrier = threading.Barrier(CROWD, timeout=LONG)

    def ask() -> JobHandle:
        # The connection first: opening twenty of them is what takes the time.
        connection.ensure_connection()
        barrier.wait()
        if not in_transaction:
            return keyed.delay("a")
        with transaction.atomic():
            return keyed.delay("a")

    handles = [future.result(LONG) for future in [apart(ask) for _ in range(CROWD)]]
    assert counts() == (1, 1)
    assert {handle.public_id for handle in handles} == {jobs()[0].public_id}
    assert sum(handle.created for handle in handles) == 1


def test_whoever_comes_second_waits_for_the_first_to_commit() -> None:
    """An uncommitted holder makes the caller wait; after its commit it is the same job."""
    holder = Holder("a")
    second = apart(lambda: keyed.delay("a"))
    wait_for(is_waiting_for_a_lock, what="the second session to wait")
    holder.end(commits=True)
    assert not second.result(LONG).created
    assert counts() == (1, 1)


def test_whoever_waits_gets_the_key_when_the_first_rolls_back() -> None:
    """The holder's rollback frees the key: the caller that waited makes the job."""
    holder = Holder("a")
    second = apart(lambda: keyed.delay("a"))
    wait_for(is_waiting_for_a_lock, what="the second session to wait")
    holder.end(commits=False)
    assert second.result(LONG).created
    assert counts() == (1, 1)


@pytest.mark.parametrize("in_transaction", [True, False])
def test_the_wait_ends_with_the_databases_own_lock_time_out(in_transaction: bool) -> None:
    """A holder that doesn't end: a typed error, not an endless request, and not many waits."""
    holder = Holder("a")

    def ask() -> bool:
        limit_lock_waits(1)
        if not in_transaction:
            keyed.delay("a")
        with transaction.atomic():
            keyed.delay("a")
        return True

    with pytest.raises(KeyBusy) as busy:
        apart(ask).result(LONG)
    holder.end(commits=True)
    assert counts() == (1, 1)
    said = str(busy.value)
    assert said.startswith(f"{keyed.name}: the key 'keyed:a': Another transaction")
    assert "INSERT" not in said.upper()
    assert "\n" not in said


def test_a_caller_that_goes_on_after_a_busy_key_can_write_nothing() -> None:
    """The database may have dropped the transaction: what came before must not half stand."""
    holder = Holder("a")

    def ask() -> None:
        limit_lock_waits(1)
        with transaction.atomic():
            Mark.objects.create(name="before")
            with pytest.raises(KeyBusy):
                keyed.delay("a")
            with pytest.raises(TransactionManagementError):
                Mark.objects.create(name="after")

    apart(ask).result(LONG)
    holder.end(commits=True)
    assert not Mark.objects.exists()


def test_a_caller_with_a_savepoint_can_go_on(fresh: str) -> None:
    """A busy key costs a savepoint no more than itself (where only one lock was in the way)."""
    holder = Holder(fresh + "held")

    def ask() -> None:
        limit_lock_waits(1)
        with transaction.atomic():
            Mark.objects.create(name="before")
            with pytest.raises(KeyBusy), transaction.atomic():
                keyed.delay(fresh + "held")
            keyed.delay(fresh + "free")

    apart(ask).result(LONG)
    holder.end(commits=False)
    assert (keys(), Mark.objects.count()) == ([f"keyed:{fresh}free"], 1)


def test_two_keys_in_opposite_order_are_a_typed_error_for_one(fresh: str) -> None:
    """EV-17: two transactions deadlock; one is told so and keeps nothing, the other has both."""
    met = threading.Barrier(2, timeout=LONG)

    def ask(first: str, second: str) -> str:
        with transaction.atomic():
            keyed.delay(first, first)
            met.wait()
            keyed.delay(second, first)
        return first

    both = [
        apart(lambda: ask(fresh + "left", fresh + "right")),
        apart(lambda: ask(fresh + "right", fresh + "left")),
    ]
    outcomes = [_outcome(future) for future in both]
    assert outcomes.count(KeyBusy) == 1
    assert counts() == (2, 2)


def _outcome(future: "Future[str]") -> object:
    error = future.exception(LONG)
    return type(error) if error else future.result()


def test_bulk_calls_take_their_keys_in_one_order(fresh: str) -> None:
    """EV-17: a bulk call that has to wait for its first key holds none of the later ones."""
    holder = Holder(fresh + "a")
    bulk = apart(lambda: enqueue_many([keyed.s(fresh + "z"), keyed.s(fresh + "a")]))
    wait_for(is_waiting_for_a_lock, what="the bulk call to wait")

    def ask() -> bool:
        limit_lock_waits(1)
        with transaction.atomic():
            created: bool = keyed.delay(fresh + "z").created
            # Undone, so that the bulk call has nothing to complain of.
            transaction.set_rollback(True)
        return created

    assert apart(ask).result(LONG)
    holder.end(commits=False)
    assert [handle.created for handle in bulk.result(LONG)] == [True, True]


def test_bulk_calls_in_opposite_order_do_not_deadlock() -> None:
    """EV-17: the same keys the other way round, from two sides, again and again."""
    met = threading.Barrier(2, timeout=LONG)

    def ask(names: list[str]) -> int:
        made = 0
        for round_ in range(15):
            met.wait()
            with transaction.atomic():
                made += sum(h.created for h in enqueue_many(keyed.s(f"{round_}{n}") for n in names))
        return made

    both = [apart(lambda: ask(["a", "b", "c"])), apart(lambda: ask(["c", "b", "a"]))]
    assert sum(future.result(LONG) for future in both) == 45
    assert counts() == (45, 45)


@pytest.mark.parametrize("in_transaction", [True, False])
def test_three_ask_and_the_first_rolls_back(in_transaction: bool) -> None:
    """EV-16: MariaDB tells one of those who waited of a deadlock: a typed error, or a retry."""
    holder = Holder("a")

    def ask() -> bool:
        if not in_transaction:
            return bool(keyed.delay("a").created)
        with transaction.atomic():
            return bool(keyed.delay("a").created)

    both = [apart(ask), apart(ask)]
    wait_for(is_waiting_for_a_lock, what="the others to wait")
    holder.end(commits=False)
    errors = [type(e) for e in (future.exception(LONG) for future in both) if e is not None]
    assert counts() == (1, 1)
    assert errors in ([], [KeyBusy]) if in_transaction else errors == []


def test_a_failed_job_is_run_again_once() -> None:
    """Two sessions ask for a failed key at once: one reruns it, the other gets that handle."""
    keyed.delay("a")
    end(jobs()[0].pk, State.FAILED)
    met = threading.Barrier(2, timeout=LONG)

    def ask() -> str:
        met.wait()
        with transaction.atomic():
            return str(keyed.delay("a").id)

    ids = {future.result(LONG) for future in [apart(ask), apart(ask)]}
    (job,) = jobs()
    assert (len(ids), job.state, job.fence) == (1, State.WAITING, 1)
    assert counts() == (1, 1)
