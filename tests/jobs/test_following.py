"""The slot of a coalesce key: taken by a claim, given up by every end, never held by two."""

import threading
import uuid
from typing import Any

import pytest
from django.db import connection, connections, transaction

from celery_guard.jobs import claiming, folding, running
from celery_guard.jobs.clock import DatabaseNow
from celery_guard.jobs.following import LOOK_AGAIN, free
from celery_guard.jobs.named import NamedJob
from celery_guard.models import Job
from tests.factories import make_job
from tests.jobs.requests import ask, begin, claim, held_elsewhere, let_time_pass, send, state

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.mariadb]


def _sent(key: str = "k", **changes: object) -> Job:
    # As a second leader would leave it, that saw nothing of the first one's sending.
    job = ask(key, **changes)
    Job.objects.filter(pk=job.pk).update(sent_at=DatabaseNow())
    return job


@pytest.mark.bar
def test_two_that_were_sent_at_once_never_run_at_once():
    """EV-01: the second claim finds the slot taken; its job waits, and runs when it is free."""
    first, second = _sent(), _sent()
    holder = begin(first)
    assert claim(second) is None
    second.refresh_from_db()
    assert (second.state, second.reason, second.sent_at) == ("waiting", "follower", None)
    assert (second.starts, second.fence, second.failures) == (0, 0, 0)
    assert running.succeed(holder.hold)
    assert send() == [second.pk]
    assert claim(second) is not None


@pytest.mark.bar
def test_many_claims_at_the_same_moment_give_one_run():
    """Eight sessions claim eight jobs of one key at once: one gets it, seven wait."""
    jobs = [_sent() for _ in range(8)]
    start, won = threading.Barrier(len(jobs)), []

    def work(job: Job) -> None:
        start.wait()
        found = claiming.claim("default", NamedJob(job.pk), owner=uuid.uuid4(), lease=60)
        won.append(found is not None)
        connections.close_all()

    threads = [threading.Thread(target=work, args=(job,)) for job in jobs]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert sorted(won) == [False] * 7 + [True]
    assert Job.objects.filter(state="running").count() == 1
    assert Job.objects.filter(state="waiting", reason="follower").count() == 7


def test_other_keys_and_tasks_have_slots_of_their_own():
    """A key belongs to its task."""
    jobs = [_sent("a"), _sent("b"), _sent("a", task="other"), _sent("ab", task="x")]
    assert all(claim(job) for job in jobs)


def test_jobs_without_a_coalesce_key_take_no_slot():
    """NULL is not equal to NULL, on any database."""
    first, second = _sent(None), _sent(None)
    assert begin(first).coalesce_key is None
    assert claim(second)
    assert set(Job.objects.values_list("running_key", flat=True)) == {None}


def test_a_direct_claim_takes_the_slot_too():
    """Adopted and eager attempts are attempts like any other."""
    begin(_sent())
    other = ask()
    found = claiming.claim_directly("default", NamedJob(other.pk), owner=uuid.uuid4(), lease=60)
    assert found is None
    assert Job.objects.get(pk=other.pk).reason == "follower"


def test_a_taken_slot_leaves_a_surrounding_transaction_usable():
    """A test case, or an eager call in a view: what it wrote before stays."""
    begin(_sent())
    other = _sent()
    with transaction.atomic():
        plain = ask(None)
        assert claim(other) is None
    assert state(plain) == "waiting"


def test_reconciling_keeps_the_slot_until_it_waits_again():
    """The outside call may still be under way."""
    from celery_guard.settle.moves import look_again, wait_for_answer

    holder, other = _sent(), _sent()
    held = begin(holder).hold
    assert wait_for_answer(held)
    assert claim(other) is None
    assert look_again("default", ["high"], 10) == 1
    holder.refresh_from_db()
    assert holder.running_key is None
    let_time_pass(LOOK_AGAIN + 1)
    assert send() == [holder.pk]


@pytest.mark.bar
def test_two_leaders_at_once_send_and_run_without_losing_the_last_request():
    """Both fold the same key again and again while requests come; the last one is always run."""
    from celery_guard.jobs.release import release
    from celery_guard.models import LaneLead
    from tests.relay.ledger import lead

    held, stop, ran, overlap = lead(), threading.Event(), [], []

    def lead_and_work() -> None:
        while not stop.is_set():
            for sending in release("default", held, 10, None):
                owner = uuid.uuid4()
                found = claiming.claim("default", NamedJob(sending.id), owner=owner, lease=60)
                if found is not None:
                    ran.append(sending.id)
                    overlap.append(Job.objects.filter(state="running").count() != 1)
                    running.succeed(found.hold)
        connections.close_all()

    threads = [threading.Thread(target=lead_and_work) for _ in range(3)]
    [thread.start() for thread in threads]
    asked = [ask() for _ in range(60)]
    from tests.kit.wait import wait_for

    try:
        wait_for(
            lambda: not Job.objects.filter(state__in=("waiting", "running")).exists(),
            timeout=40,
            what="every request to be answered",
        )
    finally:
        stop.set()
        [thread.join() for thread in threads]
    assert LaneLead.objects.exists()
    assert asked[-1].pk in ran
    assert not any(overlap)
    assert set(Job.objects.values_list("state", flat=True)) <= {"succeeded", "superseded"}


@pytest.mark.bar
def test_an_end_in_the_middle_of_a_fold_makes_one_follower(monkeypatch: pytest.MonkeyPatch):
    """Its follower's row is held by whoever ends it; a newer request does not go without that one."""
    first = ask()
    assert send() == [first.pk]
    holder = begin(first)
    follower = ask()
    assert send() == []
    newer = ask()
    ending = held_elsewhere(lambda: running.succeed(holder.hold), commit=True)
    lock = folding._locked

    def lock_and_let_it_end(*given: Any) -> Any:
        found = lock(*given)
        monkeypatch.undo()
        ending.__exit__(None, None, None)
        return found

    ending.__enter__()
    monkeypatch.setattr(folding, "_locked", lock_and_let_it_end)
    # The next look of the same release folds both.
    assert send() == [newer.pk]
    assert (state(follower), follower.survivor_id) == ("superseded", newer.pk)


def test_an_end_holds_only_its_followers():
    """Whichever index leads to them: MariaDB locks what it passes over."""
    for _ in range(100):
        make_job(due_in=600)
    request, ended = ask(), ask()
    with held_elsewhere(lambda: free("default", ended.pk), commit=False), transaction.atomic():
        unlocked = Job.objects.filter(pk=request.pk).select_for_update(skip_locked=True)
        assert list(unlocked) == [request]


def test_requests_wait_for_no_lock():
    """Callers append: while others' transactions are open, and while the key is folded and runs."""
    if connection.vendor != "postgresql":
        pytest.skip("read from PostgreSQL's own view")
    begin(_sent())
    gate, count = threading.Event(), 6
    asked = threading.Barrier(count + 1)

    def call() -> None:
        with transaction.atomic():
            ask()
            asked.wait(20)
            gate.wait(20)
        connections.close_all()

    threads = [threading.Thread(target=call) for _ in range(count)]
    [thread.start() for thread in threads]
    try:
        # All six have inserted, and none has committed.
        asked.wait(20)
        ask()
        assert send() == []
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM pg_locks WHERE NOT granted")
            assert cursor.fetchone() == (0,)
    finally:
        gate.set()
        [thread.join() for thread in threads]
    assert send() == []
    assert Job.objects.filter(state="waiting").count() == 1


def test_a_claim_without_a_coalesce_key_stays_a_cheap_update():
    """Of the columns of all indexes it changes none, so PostgreSQL writes no index entry."""
    if connection.vendor != "postgresql":
        pytest.skip("read from PostgreSQL's own counters")
    job = _sent(None)
    hot = "SELECT pg_stat_get_xact_tuples_hot_updated('celery_guard_job'::regclass)"
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(hot)
        (before,) = cursor.fetchone()
        begin(job)
        cursor.execute(hot)
        assert cursor.fetchone() == (before + 1,)
