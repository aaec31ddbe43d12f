"""Folding at the release: which request is sent, which are spoken for, and what is inherited."""

from datetime import timedelta

import pytest
from django.db import DatabaseError, connection, transaction
from django.utils import timezone

from celery_guard.jobs import cancelling, folding, rescuing, running, standing
from celery_guard.jobs.adding import cancel, replay
from celery_guard.jobs.clock import in_seconds
from celery_guard.jobs.following import LOOK_AGAIN
from celery_guard.jobs.named import NamedJob
from celery_guard.jobs.running import Hold
from celery_guard.models import Effect, Job
from celery_guard.settle import moves
from celery_guard.settle.provider import Provider
from celery_guard.settle.states import OPEN
from tests.factories import make_job
from tests.jobs.requests import (
    ask,
    ask_debounced,
    ask_every,
    begin,
    claim,
    held_elsewhere,
    let_time_pass,
    run,
    send,
    state,
)

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.mariadb]


@pytest.mark.bar
def test_the_newest_request_is_sent_and_speaks_for_the_others():
    """CO-01: four requests, one message, the last one's; the others name their survivor."""
    *older, newest = [ask(args=(n,)) for n in range(4)]
    assert send() == [newest.pk]
    assert [state(job) for job in older] == ["superseded"] * 3
    assert {(job.survivor_id, job.reason, job.due_at) for job in older} == {
        (newest.pk, "coalesced", None)
    }
    assert all(job.finished_at for job in older)


def test_keys_and_tasks_do_not_mix():
    """One key of one task is a group; everything else stays apart."""
    jobs = [ask("a"), ask("b"), ask("a", task="other"), ask("A")]
    assert sorted(send()) == [job.pk for job in jobs]


def test_jobs_without_a_coalesce_key_are_sent_as_ever():
    """The same release sends both kinds, each once."""
    plain, coalesced = ask(None), ask("a")
    assert sorted(send()) == [plain.pk, coalesced.pk]
    assert send() == []


@pytest.mark.bar
def test_what_is_sent_is_never_superseded_and_what_comes_later_follows():
    """CO-02: one follower waits, however many asked, and is sent when the run has ended."""
    first = ask()
    assert send() == [first.pk]
    ask(), ask()
    assert send() == []
    claimed = begin(first)
    last = ask()
    assert send() == []
    assert Job.objects.filter(state="waiting").get().pk == last.pk
    assert running.succeed(claimed.hold)
    assert send() == [last.pk]
    run(last)
    assert send() == []
    assert state(first) == state(last) == "succeeded"


ENDS = {
    "succeeded": running.succeed,
    "failed": lambda hold: running.end(hold, state="failed", reason="permanent", error="{}"),
    "dead": lambda hold: running.end(hold, state="dead", reason="budget", error="{}"),
}


@pytest.mark.bar
@pytest.mark.parametrize("how", ENDS)
def test_every_end_of_the_holder_frees_the_follower(how: str):
    """EV-13: the slot is empty and the follower due at once."""
    holder = ask()
    send()
    claimed = begin(holder)
    follower = ask()
    assert send() == []
    follower.refresh_from_db()
    assert (follower.reason, follower.due_at > timezone.now()) == ("follower", True)
    with transaction.atomic():
        assert ENDS[how](claimed.hold)
    assert state(holder) == how
    assert holder.running_key is None
    assert send() == [follower.pk]
    assert claim(follower) is not None


@pytest.mark.parametrize("how", ["cancelled", "expired", "parked"])
def test_the_end_of_a_sent_holder_frees_the_follower(how: str):
    """It never ran, and nothing else would say so."""
    holder = ask()
    send()
    follower = ask()
    assert send() == []
    if how == "cancelled":
        assert cancel("default", holder.pk) == 1
    elif how == "expired":
        Job.objects.filter(pk=holder.pk).update(expires_at=in_seconds(-1))
        assert standing.expire("default", NamedJob(holder.pk), "{}")
    else:
        assert standing.park("default", NamedJob(holder.pk), reason="misfit", error="{}")
    assert send() == [follower.pk]


@pytest.mark.parametrize("how", ["waiting", "put back", "rescued"])
def test_a_cancel_that_was_asked_for_frees_the_follower(how: str):
    """It ends the holder where it would have waited again, so nobody else frees the key."""
    holder = ask()
    send()
    claimed = begin(holder) if how != "waiting" else None
    follower = ask()
    assert send() == []
    told = cancelling.ask("default", holder.public_id)
    assert told == ("cancelled" if how == "waiting" else "asked")
    if how == "put back":
        assert claimed
        assert running.put_back(claimed.hold, reason="retry", due=600)
        assert cancelling.honour("default", holder.pk)
    elif how == "rescued":
        Job.objects.filter(pk=holder.pk).update(lease_until=in_seconds(-1))
        rescuing.rescue("default", "high", limit=3)
    assert state(holder) == "cancelled"
    assert send() == [follower.pk]


@pytest.mark.parametrize("how", ["retry", "snooze", "rescue", "poison"])
def test_a_holder_that_comes_back_makes_room_too(how: str):
    """EV-13, EV-15: the newest request takes its place, with its budget and its waiting time."""
    holder = ask()
    send()
    claimed = begin(holder)
    follower = ask()
    assert send() == []
    if how in ("retry", "snooze"):
        assert running.put_back(claimed.hold, reason=how, due=600, failures=int(how == "retry"))
    else:
        Job.objects.filter(pk=holder.pk).update(lease_until=in_seconds(-1))
        rescuing.rescue("default", "high", limit=1 if how == "poison" else 3)
    holder.refresh_from_db()
    assert holder.running_key is None
    let_time_pass(LOOK_AGAIN + 1)
    sent = send()
    follower.refresh_from_db()
    if how in ("retry", "snooze"):
        assert sent == []
        assert (follower.reason, follower.failures) == (how, int(how == "retry"))
        assert follower.due_at > timezone.now() + timedelta(seconds=500)
        let_time_pass(600)
        sent = send()
    assert sent == [follower.pk]
    assert state(holder) == ("dead" if how == "poison" else "superseded")


def test_a_lost_wake_heals_by_the_due_time():
    """EV-13: a follower that nobody freed is looked at again all the same."""
    holder = ask()
    send()
    ended = begin(holder)
    follower = ask()
    assert send() == []
    # An end that frees nobody, as one whose process died in between.
    Job.objects.filter(pk=ended.hold.job_id).update(
        state="succeeded", owner=None, sent_at=None, due_at=None, running_key=None,
        finished_at=timezone.now(),
    )  # fmt: skip
    assert send() == []
    let_time_pass(LOOK_AGAIN + 1)
    assert send() == [follower.pk]


@pytest.mark.bar
def test_the_survivor_forgets_nothing():
    """EV-15: highest failures and losses, latest waiting time, the longest life."""
    tried = ask(reason="retry", failures=3, lost=1, due_in=-1)
    fresh = ask(expires_in=1)
    assert send() == [fresh.pk]
    fresh.refresh_from_db()
    assert (fresh.failures, fresh.lost, fresh.expires_at) == (3, 1, None)
    assert fresh.first_due_at == tried.first_due_at


@pytest.mark.parametrize("reason", ["retry", "breaker", "rate"])
def test_a_newer_request_shortens_no_waiting_time(reason: str):
    """A backoff or an open breaker holds for the key, not for one row of it."""
    ask(reason=reason, failures=2, due_in=300)
    newest = ask()
    assert send() == []
    newest.refresh_from_db()
    assert (newest.reason, newest.failures) == (reason, 2)
    assert newest.due_at > timezone.now() + timedelta(seconds=250)
    later = ask()
    assert send() == []
    later.refresh_from_db()
    assert (later.reason, later.failures, later.due_at) == (reason, 2, newest.due_at)


def test_a_request_for_later_is_left_for_later():
    """It neither holds up one that is due nor is swallowed by it."""
    later, now = ask(due_in=60, reason="eta"), ask()
    assert send() == [now.pk]
    run(now)
    assert state(later) == "waiting"
    let_time_pass(61)
    assert send() == [later.pk]


def test_a_debounced_key_is_due_when_it_has_been_quiet():
    """min(max(due), …): each request puts the run off, up to its wait."""
    ask_debounced(age=6, wait=5, max_wait=60)
    newest = ask_debounced(age=2, wait=5, max_wait=60)
    assert send() == []
    newest.refresh_from_db()
    seconds = (newest.due_at - timezone.now()).total_seconds()
    assert 2 < seconds <= 3
    let_time_pass(3)
    assert send() == [newest.pk]


def test_a_debounced_key_is_put_off_no_longer_than_its_oldest_request_allows():
    """…, min(max_due)): the bound counts from the first request and is inherited at every fold."""
    ask_debounced(age=6, wait=5, max_wait=10)
    ask_debounced(age=2, wait=5, max_wait=10)
    assert send() == []
    let_time_pass(3)
    newest = ask_debounced(age=0, wait=5, max_wait=10)
    assert send() == []
    newest.refresh_from_db()
    seconds = (newest.due_at - timezone.now()).total_seconds()
    assert 0 < seconds <= 1
    let_time_pass(1)
    assert send() == [newest.pk]


def test_every_runs_at_once_and_then_once_in_a_period():
    """The clock is the newest finished job of the key; the last request always runs."""
    first = ask_every(30)
    assert send() == [first.pk]
    run(first)
    ask_every(30)
    last = ask_every(30)
    assert send() == []
    last.refresh_from_db()
    seconds = (last.due_at - timezone.now()).total_seconds()
    assert 28 < seconds <= 30
    let_time_pass(30)
    assert send() == [last.pk]
    run(last)
    let_time_pass(31)
    assert send() == []
    lone = ask_every(30)
    assert send() == [lone.pk]


@pytest.mark.bar
@pytest.mark.parametrize("commit", [True, False])
def test_a_request_that_is_being_cancelled_swallows_nothing(commit: bool):
    """EV-14: the older one runs, whether the cancel of the newer is kept or not."""
    older, newest = ask(), ask()
    with held_elsewhere(lambda: cancel("default", newest.pk), commit=commit):
        assert send() == [older.pk]
    run(older)
    assert send() == ([] if commit else [newest.pk])
    assert state(older) == "succeeded"


def test_an_expired_request_speaks_for_nobody():
    """It ends expired, and the one before it runs."""
    older, newest = ask(), ask(expires_in=-1)
    assert send() == [older.pk]
    assert state(newest) == "expired"


@pytest.mark.bar
def test_a_request_committed_late_is_not_taken_for_covered():
    """Row numbers are given out before the commit: a lower one may be news."""
    early, done = ask(), ask()
    Job.objects.filter(pk=early.pk).update(coalesce_key=None, due_at=in_seconds(600))
    assert send() == [done.pk]
    run(done)
    # Only now is it seen.
    Job.objects.filter(pk=early.pk).update(coalesce_key="k", due_at=in_seconds(-1))
    assert send() == [early.pk]


def test_an_old_attempt_ends_superseded_after_a_newer_success():
    """A retry of it would undo what the newer run saw."""
    old = ask()
    send()
    claimed = begin(old)
    assert running.put_back(claimed.hold, reason="retry", due=0)
    newer = ask()
    with held_elsewhere(lambda: Job.objects.select_for_update().get(pk=old.pk), commit=False):
        assert send() == [newer.pk]
    run(newer)
    assert send() == []
    assert (state(old), old.survivor_id) == ("superseded", newer.pk)


def test_a_replay_after_a_newer_success_ends_superseded():
    """Also of a job that never ran; without a newer success it runs again."""
    failed, cancelled = ask(), ask("k", due_in=600, reason="eta")
    send()
    assert running.end(begin(failed).hold, state="failed", reason="permanent", error="{}")
    assert cancel("default", cancelled.pk) == 1
    assert replay("default", failed.pk) == 1
    assert send() == [failed.pk]
    assert running.end(begin(failed).hold, state="failed", reason="permanent", error="{}")
    newer = ask()
    assert send() == [newer.pk]
    run(newer)
    assert replay("default", failed.pk, cancelled.pk) == 0
    assert (state(failed), state(cancelled)) == ("superseded", "superseded")
    assert failed.survivor_id == newer.pk


def test_a_job_that_asks_after_an_outside_call_is_not_superseded():
    """Nobody else can ask for it: it goes first, and alone."""
    asking, newest = ask(reason="uncertain"), ask()
    assert send() == [asking.pk]
    run(asking)
    assert send() == [newest.pk]


PROVIDER = Provider(name="p", recovery="reconcilable")


def _call(hold: Hold) -> Effect:
    # As it is while the call is under way.
    effect = moves.prepare(hold, moves.Wish(name="charge", provider=PROVIDER), "key")
    assert moves.hold_for(hold, 60)
    assert moves.mark_sent(hold, effect, PROVIDER)
    effect.refresh_from_db()
    return effect


@pytest.mark.bar
@pytest.mark.parametrize("how", ["lost", "refused", "slot taken"])
def test_a_job_whose_call_has_no_answer_is_not_superseded(how: str):
    """Whatever it waits for now: another job would call again, under another provider key."""
    slow = ask(lane="low") if how == "slot taken" else None
    assert send("low") == ([slow.pk] if slow else [])
    asking = ask()
    assert send() == [asking.pk]
    held = begin(asking).hold
    effect = _call(held)
    if how == "lost":
        Job.objects.filter(pk=asking.pk).update(lease_until=in_seconds(-1))
        assert len(rescuing.rescue("default", "high", limit=3)) == 1
    elif how == "refused":
        assert running.put_back(held, reason="rate", due=0)
    else:
        assert slow
        assert moves.not_known("default", effect, PROVIDER, "?")
        assert moves.wait_for_answer(held)
        Effect.objects.update(look_at=in_seconds(-1))
        assert moves.look_again("default", ["high"], 10) == 1
        assert send() == [asking.pk]
        other = begin(slow).hold
        assert claim(asking) is None
        assert running.succeed(other)
    newest = ask()
    assert send() == [asking.pk]
    assert state(newest) == "waiting"
    held = begin(asking).hold
    assert moves.confirm("default", effect.pk, "1")
    assert running.succeed(held)
    assert send() == [newest.pk]


def test_a_call_without_an_answer_waits_its_time():
    """It goes alone, but no sooner than it was told, and holds up the key until then."""
    asking = ask()
    send()
    held = begin(asking).hold
    _call(held)
    assert running.put_back(held, reason="retry", due=600, failures=1)
    newest = ask()
    assert send() == []
    assert (state(asking), state(newest)) == ("waiting", "waiting")
    let_time_pass(601)
    assert send() == [asking.pk]


def test_an_open_call_is_the_same_to_the_fold_and_to_the_effects():
    """The fold lies below the effects, and names their states by itself."""
    assert set(folding._OPEN) == set(OPEN)


def test_whoever_waits_for_an_older_request_gets_an_echo():
    """It leaves the key, and is answered as the survivor ends."""
    awaited, newest = ask(awaited=True), ask()
    assert send() == [newest.pk]
    awaited.refresh_from_db()
    assert (awaited.state, awaited.reason) == ("waiting", "echo")
    assert (awaited.survivor_id, awaited.coalesce_key) == (newest.pk, None)
    assert send() == [awaited.pk]


def test_a_hot_key_is_folded_in_one_look():
    """Ten thousand waiting requests cost neither ten thousand looks nor a crowded lane."""
    if connection.vendor != "postgresql":
        pytest.skip("the rows are made by PostgreSQL")
    model = ask("hot")
    columns = [
        field.column
        for field in Job._meta.concrete_fields
        if field.column not in ("id", "public_id")
    ]
    names = ", ".join(columns)
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO celery_guard_job (public_id, {names}) "
            f"SELECT gen_random_uuid(), {names} FROM celery_guard_job, generate_series(1, 9000) "
            f"WHERE id = {model.pk}"
        )
    other = ask("other", due_in=0)
    assert len(send(batch=10)) == 1
    assert Job.objects.filter(coalesce_key="hot", state="waiting").count() == 1
    assert send(batch=10) == [other.pk]


def test_a_due_request_is_not_hidden_by_ones_for_later(monkeypatch: pytest.MonkeyPatch):
    """A pass takes the newest requests that take part, not the newest of all."""
    monkeypatch.setattr(folding, "MOST", 3)
    due = ask()
    for _ in range(4):
        ask(due_in=3600, reason="eta")
    assert send() == [due.pk]


def test_keys_that_differ_in_case_do_not_answer_each_other():
    """Nor does the end of one begin the other's period, whatever the database takes for equal."""
    tried = ask("Prod")
    send()
    assert running.put_back(begin(tried).hold, reason="retry", due=0, failures=1)
    other = ask("prod", lane="low")
    assert send("low") == [other.pk]
    run(other)
    assert send() == [tried.pk]
    run(tried)
    period = ask_every(30, key="PROD")
    assert send() == [period.pk]


def test_a_fold_that_fails_takes_back_what_was_marked_beside_it(monkeypatch: pytest.MonkeyPatch):
    """Jobs without a key were marked in a transaction of their own, and nobody would send them."""
    plain, coalesced = make_job(), ask()

    def broken(*given: object) -> None:
        raise DatabaseError("a time limit")

    with monkeypatch.context() as patch:
        patch.setattr(folding, "fold", broken)
        with pytest.raises(DatabaseError):
            send()
    plain.refresh_from_db()
    assert (plain.sent_at, plain.sends) == (None, 0)
    assert sorted(send()) == [plain.pk, coalesced.pk]


def test_a_run_that_ended_in_the_future_begins_its_period_now():
    """The database's clock was ahead for a while: the key waits no longer than its period."""
    first = ask_every(30)
    send()
    run(first)
    Job.objects.filter(pk=first.pk).update(finished_at=in_seconds(86400))
    again = ask_every(30)
    assert send() == []
    again.refresh_from_db()
    assert again.due_at < timezone.now() + timedelta(seconds=40)


def test_a_request_in_a_long_queue_holds_up_no_faster_lane():
    """Each lane sends its own newest request; the slot keeps the two apart."""
    slow = ask(lane="low")
    assert send("low") == [slow.pk]
    fast = ask()
    assert send() == [fast.pk]
    held = begin(fast).hold
    assert claim(slow) is None
    assert send() == send("low") == []
    assert running.succeed(held)
    assert send("low") == [slow.pk]
    run(slow)
