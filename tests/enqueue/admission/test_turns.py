"""Whoever comes back when told finds a place, however many come anew."""

import time
from datetime import UTC, datetime, timedelta

import pytest

from celery_guard import admit
from celery_guard.enqueue.admission import turns
from celery_guard.enqueue.admission.turns import LASTS, TURNS, in_turn, is_turn, turn_of
from tests.enqueue.admission.asking import granted, refusal
from tests.enqueue.admission.conftest import Limit
from tests.enqueue.admission.lanes import measure, rated
from tests.enqueue.admission.tasks import once

NOW = datetime(2026, 1, 1, 12, 0, 1, tzinfo=UTC)


def _names(*, now: bool) -> list[str]:
    """Requests whose turn it is, or is not, for as long as a long turn lasts."""
    turn = int(time.time() // turns.LASTS) % TURNS
    asked = {name: turn_of(f"{once.name} once:{name}") for name in map(str, range(400))}
    return [name for name, its in asked.items() if (its == turn) is now]


@pytest.fixture
def _one_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "LASTS", 1e8)


@pytest.mark.mariadb
@pytest.mark.usefixtures("_one_turn")
@pytest.mark.django_db(transaction=True)
def test_the_first_free_place_is_kept_for_whose_turn_it_is(limit: Limit) -> None:
    """Forty fit, whoever they are; then of those that open, two are for who was told to come now."""
    limit(medium={"depth": 40})
    strangers, told = _names(now=False), _names(now=True)
    first = [admit(once, (strangers.pop(),)) for _ in range(40)]
    assert not granted(once, strangers.pop())
    assert not granted(once, told[0])
    first[0].give_back()
    assert not granted(once, strangers.pop())
    assert granted(once, told[0])
    for place in first[1:4]:
        place.give_back()
    assert granted(once, strangers.pop())
    assert not granted(once, strangers.pop())


@pytest.mark.mariadb
@pytest.mark.usefixtures("_one_turn")
@pytest.mark.django_db(transaction=True)
def test_turns_are_forgotten_when_the_lane_is_full_no_more(
    limit: Limit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that was refused nothing lately fills the lane to its depth."""
    limit(medium={"depth": 40})
    strangers = _names(now=False)
    first = [admit(once, (strangers.pop(),)) for _ in range(40)]
    assert not granted(once, strangers.pop())
    first[0].give_back()
    turns.forget()
    assert granted(once, strangers.pop())


@pytest.mark.mariadb
@pytest.mark.django_db(transaction=True)
def test_a_refusal_names_a_moment_of_the_callers_turn(limit: Limit) -> None:
    """Not before the lane is expected to have room; in whole seconds, as HTTP says it, too."""
    limit(medium={"depth": 40}, snapshot={"every": 60})
    measure("medium", ready=40, **rated(4.0))
    for n in range(40):
        admit(once, (f"first {n}",))
    seen = set()
    for name in map(str, range(20)):
        before = time.time()
        told = refusal(once, name).retry_after
        after = time.time()
        assert 2.0 <= told <= 2.6 + LASTS * TURNS + LASTS / 2
        turn = turn_of(f"{once.name} once:{name}")
        assert any(
            is_turn(turn, datetime.fromtimestamp(at + told, UTC)) for at in (before, after)
        ) or int((before + told) // LASTS) != int((after + told) // LASTS)
        seen.add(turn)
    assert len(seen) > 1


@pytest.mark.parametrize("turn", range(TURNS))
@pytest.mark.parametrize("seconds", [1.0, 3.3, 20.0, 90.0])
def test_the_moment_lies_in_the_next_turn_after_the_estimate(turn: int, seconds: float) -> None:
    """Rounded up or not; never earlier than it was estimated."""
    for _ in range(50):
        told = in_turn(seconds, turn, NOW)
        assert seconds <= told <= seconds + LASTS * TURNS + LASTS / 2
        for said in (told, float(int(told) + 1)):
            # NOW is a whole second, so that both can be checked.
            assert is_turn(turn, NOW + timedelta(seconds=said))


def test_the_moment_is_within_the_cap(limit: Limit) -> None:
    """Then it may be the turn before the estimate, and a very low cap wins."""
    limit(admission={"retry_after": 30})
    for turn in range(TURNS):
        told = in_turn(29.5, turn, NOW)
        assert told <= 30
        assert is_turn(turn, NOW + timedelta(seconds=told))
    limit(admission={"retry_after": 2})
    assert all(in_turn(1.0, turn, NOW) <= 2 for turn in range(TURNS))
