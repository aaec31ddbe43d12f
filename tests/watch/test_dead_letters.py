"""Counting dead letters by walking the ledger."""

from __future__ import annotations

import pytest
from django.db import connection

from celery_guard.jobs.states import State
from celery_guard.models import Duty, Job, LaneSnapshot
from celery_guard.watch import dead_letters
from celery_guard.watch.dead_letters import count_dead_letters
from celery_guard.watch.snapshot import take_snapshot
from tests.factories import make_job
from tests.watch.rows import ended

pytestmark = [pytest.mark.django_db, pytest.mark.mariadb]


@pytest.fixture(autouse=True)
def _place() -> None:
    Duty.objects.create(name="dead_letters")


def found() -> dict[str, int] | None:
    return dead_letters.dead_letters("default")


def test_failed_and_dead_are_counted_by_lane() -> None:
    """Nothing else is: not what waits, succeeded, was cancelled, or is in another lane."""
    ended("high", State.FAILED)
    ended("high", State.DEAD)
    ended("low", State.DEAD)
    ended("high", State.SUCCEEDED)
    ended("high", State.CANCELLED)
    make_job("high")
    count_dead_letters("default")
    assert found() == {"high": 2, "low": 1}


def test_before_the_first_walk_the_number_is_not_known() -> None:
    """Not known is not zero: the snapshot says NULL, then the number."""
    ended("high", State.FAILED)
    take_snapshot("default")
    assert LaneSnapshot.objects.get(lane="high").dead_letters is None
    count_dead_letters("default")
    take_snapshot("default")
    assert LaneSnapshot.objects.get(lane="high").dead_letters == 1
    assert LaneSnapshot.objects.get(lane="low").dead_letters == 0


def test_a_walk_that_takes_several_rounds_counts_everything_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The place and what was found on the way are kept; the number appears at the end."""
    monkeypatch.setattr(dead_letters, "RANGE", 2)
    monkeypatch.setattr(dead_letters, "SPEND", -1)
    for _ in range(5):
        ended("high", State.FAILED)
    for _ in range(3):
        count_dead_letters("default")
        assert found() is None
    count_dead_letters("default")
    assert found() == {"high": 5}
    Job.objects.all().delete()
    count_dead_letters("default")
    assert found() == {}


def test_a_round_that_dies_is_walked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A death before the place is written leaves the old place and the old numbers."""
    monkeypatch.setattr(dead_letters, "RANGE", 2)
    monkeypatch.setattr(dead_letters, "SPEND", -1)
    for _ in range(4):
        ended("high", State.FAILED)
    count_dead_letters("default")
    with monkeypatch.context() as dying:
        dying.setattr(dead_letters.counters, "replace", _die)
        with pytest.raises(KeyboardInterrupt):
            count_dead_letters("default")
    count_dead_letters("default")
    count_dead_letters("default")
    assert found() == {"high": 4}


def _die(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_purged_one_waits_for_no_decision() -> None:
    """It can't be replayed any more, so it is not counted."""
    ended("high", State.FAILED, error=None)
    count_dead_letters("default")
    assert found() == {}


def test_a_lane_of_its_own_stays_while_it_has_dead_letters() -> None:
    """Its queue is gone, but somebody has to decide about what failed there."""
    ended("elsewhere", State.FAILED)
    count_dead_letters("default")
    take_snapshot("default")
    assert LaneSnapshot.objects.get(lane="elsewhere").dead_letters == 1


@pytest.mark.django_db(transaction=True)
def test_a_ledger_that_nobody_writes_to_is_walked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """An idle site does not read its history every minute; a new dead letter is counted at once."""
    if connection.vendor != "postgresql":
        pytest.skip("only PostgreSQL counts the writes")
    walks = []
    walk = dead_letters._walk
    monkeypatch.setattr(dead_letters, "_walk", lambda *a, **k: walks.append(1) or walk(*a, **k))
    ended("high", State.FAILED)
    for _ in range(3):
        _counted()
    assert (len(walks), found()) == (1, {"high": 1})
    ended("high", State.DEAD)
    _counted()
    assert (len(walks), found()) == (2, {"high": 2})
    monkeypatch.setattr(dead_letters, "REST_MOST", 1)
    for _ in range(3):
        _counted()
    # A server that crashes forgets its counts: once in a while it is walked all the same.
    assert len(walks) == 3


def _counted() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_force_next_flush()")
        cursor.execute("SELECT 1")
    count_dead_letters("default")
