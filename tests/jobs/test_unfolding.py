"""Cancelling a request leaves those of others, that were folded into it, asked for."""

from collections.abc import Callable

import pytest

from celery_guard.jobs import adding, cancelling, running, standing
from celery_guard.jobs.named import NamedJob
from celery_guard.models import Job
from tests.jobs.requests import ask, begin, run, send, state

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.mariadb]

WAYS: dict[str, Callable[[Job], object]] = {
    "asked": lambda job: cancelling.ask("default", job.public_id) == "cancelled",
    "in bulk": lambda job: adding.cancel("default", job.pk) == 1,
    "revoked": lambda job: standing.cancel("default", NamedJob(job.pk)),
}


@pytest.mark.bar
@pytest.mark.parametrize("how", WAYS)
def test_cancelling_ones_own_request_leaves_those_of_others(how: str):
    """The newest of those it spoke for is sent in its place, and speaks for the rest."""
    oldest, older, newest = ask(), ask(), ask()
    assert send() == [newest.pk]
    assert WAYS[how](newest)
    assert state(newest) == "cancelled"
    assert send() == [older.pk]
    assert (state(oldest), oldest.survivor_id) == ("superseded", older.pk)
    older.refresh_from_db()
    assert (older.survivor_id, older.finished_at) == (None, None)
    run(older)
    assert send() == []


def test_a_run_that_is_cancelled_leaves_the_requests_of_others():
    """Its owner stops it at a checkpoint: what it would have answered is still asked for."""
    older, newest = ask(), ask()
    assert send() == [newest.pk]
    held = begin(newest).hold
    assert running.end(held, state="cancelled", reason="cancel", error="{}")
    older.refresh_from_db()
    assert (older.state, older.reason) == ("waiting", "replay")
    assert send() == [older.pk]


def test_all_of_a_group_can_be_cancelled():
    """Whoever stepped in can be cancelled like any other; then the one before it steps in."""
    jobs = [ask() for _ in range(3)]
    for job in reversed(jobs):
        assert send() == [job.pk]
        assert adding.cancel("default", job.pk) == 1
    assert send() == []
    assert {state(job) for job in jobs} == {"cancelled"}


@pytest.mark.parametrize("awaited", ["older", "oldest"])
def test_whoever_waits_is_answered_by_the_one_that_steps_in(awaited: str):
    """An echo repeats the new survivor, or becomes it: it is a request like the others."""
    oldest, older = ask(awaited=awaited == "oldest"), ask(awaited=awaited == "older")
    newest = ask()
    assert newest.pk in send()
    assert adding.cancel("default", newest.pk) == 1
    send()
    older.refresh_from_db()
    oldest.refresh_from_db()
    assert (older.state, older.survivor_id, older.coalesce_key) == ("waiting", None, "k")
    assert oldest.survivor_id == older.pk
    assert oldest.state == ("waiting" if awaited == "oldest" else "superseded")
    run(older)
    found = standing.look_through("default", oldest.pk)
    assert found is not None
    assert found.state == "succeeded"


def test_whoever_steps_in_forgets_nothing():
    """A backoff and a used-up budget hold for the key, whoever is cancelled."""
    older = ask()
    newest = ask()
    assert send() == [newest.pk]
    held = begin(newest).hold
    assert running.put_back(held, reason="retry", due=600, failures=2)
    assert adding.cancel("default", newest.pk) == 1
    assert send() == []
    due = newest.due_at
    older.refresh_from_db()
    assert (older.state, older.reason, older.failures) == ("waiting", "retry", 2)
    assert older.due_at is not None
    assert due is not None
    assert (older.due_at - due).total_seconds() > 500


def test_a_chain_of_folds_is_taken_back_link_by_link():
    """A request that was folded into a folded one is answered by that one again."""
    holder = ask()
    send()
    held = begin(holder).hold
    first, second = ask(), ask()
    assert send() == []
    assert running.succeed(held)
    third = ask()
    assert send() == [third.pk]
    assert (state(first), first.survivor_id) == ("superseded", second.pk)
    assert adding.cancel("default", third.pk) == 1
    assert send() == [second.pk]
    assert (state(first), first.survivor_id) == ("superseded", second.pk)


def test_a_job_that_nothing_was_folded_into_is_only_cancelled():
    """Nobody steps in, whatever else the ledger holds."""
    done, other = ask(), ask("other")
    send()
    run(done)
    lone = ask()
    assert adding.cancel("default", lone.pk) == 1
    assert (state(lone), state(done), state(other)) == ("cancelled", "succeeded", "waiting")
    assert send() == []
