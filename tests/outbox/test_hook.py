"""One hook a transaction tells of new work, and nothing it does or suffers harms the commit."""

import contextlib
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection, transaction

from celery_guard.enqueue.bulk import batch
from celery_guard.outbox import hook
from tests.enqueue.rows import counts, keys
from tests.enqueue.sessions import Undo, undone
from tests.enqueue.tasks import elsewhere, high, keyed

pytestmark = [
    pytest.mark.mariadb,
    pytest.mark.django_db(transaction=True, databases=["default", "other"]),
]

Told = list[tuple[list[str], str]]


@pytest.fixture
def told() -> Iterator[Told]:
    """What a listener was told, commit by commit."""
    heard: Told = []

    @hook.on_committed
    def listen(lanes: set[str], using: str) -> None:
        heard.append((sorted(lanes), using))

    yield heard
    hook._listeners.remove(listen)


def hooks() -> int:
    """How many of our hooks wait for the commit."""
    return sum(hasattr(entry[1], "guard_lanes") for entry in connection.run_on_commit)


def test_many_jobs_are_told_of_once(told: Told) -> None:
    """A transaction has one hook, which names every lane with new work."""
    with transaction.atomic():
        for n in range(3):
            keyed.delay(n)
        high.delay("a")
        assert hooks() == 1
        assert told == []
    assert told == [(["high", "medium"], "default")]


def test_each_database_is_told_for_itself(told: Told) -> None:
    """Two transactions, two hooks."""
    with transaction.atomic(using="other"), transaction.atomic():
        keyed.delay("a")
        elsewhere.delay("a")
    assert told == [(["medium"], "default"), (["medium"], "other")]


def test_without_a_transaction_it_is_told_at_once(told: Told) -> None:
    """Autocommit: every call is a commit."""
    keyed.delay("a")
    keyed.delay("b")
    assert told == [(["medium"], "default")] * 2


def test_nothing_is_told_of_what_was_undone(told: Told) -> None:
    """A transaction that is rolled back wakes nobody."""
    with transaction.atomic():
        keyed.delay("a")
        transaction.set_rollback(True)
    assert told == []


@pytest.mark.parametrize("order", ["undone first", "undone last"])
def test_an_undone_savepoint_leaves_the_hook_to_the_rest(told: Told, order: str) -> None:
    """EV-30: of two requests one is undone; the other stands, and its commit is told of."""
    with transaction.atomic():
        if order == "undone last":
            keyed.delay("kept")
        with undone():
            keyed.delay("undone")
        if order == "undone first":
            assert hooks() == 0
            keyed.delay("kept")
        assert hooks() == 1
    assert keys() == ["keyed:kept"]
    assert told == [(["medium"], "default")]


def test_of_two_requests_of_one_key_the_one_that_stands_is_kept(told: Told) -> None:
    """EV-30: the first request of a key is undone with its savepoint; the second makes the job."""
    with transaction.atomic():
        with undone():
            assert keyed.delay("a").created
        assert keyed.delay("a").created
    assert keys() == ["keyed:a"]
    assert len(told) == 1


def test_a_hook_of_the_site_that_raises_loses_no_job(told: Told) -> None:
    """OB-06: an earlier hook fails and ours is skipped; the row is there for the relay to find."""

    def broken() -> None:
        raise Undo

    with contextlib.suppress(Undo), transaction.atomic():
        transaction.on_commit(broken)
        keyed.delay("a")
    assert (counts(), told) == ((1, 1), [])


def test_a_listener_that_raises_stops_nobody(caplog: pytest.LogCaptureFixture) -> None:
    """OB-06: our hook is robust: the site's later hooks run, and the error is in the log."""
    ran: list[str] = []

    @hook.on_committed
    def fail(lanes: set[str], using: str) -> None:
        raise Undo("wake channel")

    try:
        with caplog.at_level(logging.ERROR), transaction.atomic():
            keyed.delay("a")
            transaction.on_commit(lambda: ran.append("site"))
    finally:
        hook._listeners.remove(fail)
    assert ran == ["site"]
    assert "wake channel" in caplog.text
    assert "AttributeError" not in caplog.text


def test_a_transaction_made_by_hand_has_no_hook(told: Told) -> None:
    """With autocommit off Django has no hooks; the relay's poll finds the row."""
    transaction.set_autocommit(False)
    try:
        keyed.delay("a")
        transaction.commit()
    finally:
        transaction.set_autocommit(True)
    assert (counts(), told) == ((1, 1), [])


def test_a_batch_is_told_of_once(told: Told) -> None:
    """A batch without a transaction is one commit."""
    with batch():
        keyed.delay("a")
        high.delay("b")
    assert told == [(["high", "medium"], "default")]


@pytest.mark.django_db(transaction=False, databases=["default", "other"])
def test_in_a_test_case_the_hook_runs_when_the_test_says_so(
    told: Told, django_capture_on_commit_callbacks: Any
) -> None:
    """In a TestCase nothing is committed: Django's own helper runs the hook."""
    with django_capture_on_commit_callbacks(execute=True), transaction.atomic():
        keyed.delay("a")
    assert told == [(["medium"], "default")]
