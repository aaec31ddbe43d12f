"""How many workers a lane needs: the formula, its bounds, its calm."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from celery_guard.watch.rates import Service, learn
from celery_guard.watch.scaling import LIMITS, Load, Past, Policy, advise

POLICY = Policy(
    objective=60.0, concurrency=4, least=1, most=20, headroom=0.2, tolerance=0.1, burst=1
)
NEVER = Past(advised=0, needed=0)


def load(arrivals: float = 10.0, rate: float = 1.0, backlog: int = 0, age: float = 0.0) -> Load:
    return Load(arrivals=arrivals, service_rate=rate, backlog=backlog, age=age)


def workers(of: Load, past: Past = NEVER, **changes: object) -> int:
    return advise(of, dataclasses.replace(POLICY, **changes), past).workers  # type: ignore[arg-type]


def test_a_steady_load_gets_its_slots_and_headroom() -> None:
    """10 a second at 1 a second and slot: 12 slots, 3 workers of 4."""
    assert workers(load()) == 3
    assert workers(load(rate=0.5)) == 6


def test_a_backlog_is_drained_within_the_objective() -> None:
    """What comes in five seconds is none; 650 jobs more than that are 10 slots for a minute."""
    assert workers(load(backlog=50)) == 3
    assert workers(load(backlog=650)) == 6


def test_a_late_lane_gets_a_step_more_if_anything_can_start() -> None:
    """Held by a limit, a job is late whatever the workers."""
    assert workers(load(backlog=1, age=61)) == 4
    assert workers(load(backlog=0, age=61)) == 3


def test_slots_that_jobs_hold_are_needed() -> None:
    """Nothing arrives and nothing ends, and ten slots are busy for an hour: three workers of 4."""
    held = dataclasses.replace(load(arrivals=0), busy=10)
    assert workers(held) == 3
    assert workers(held, Past(advised=8, needed=1)) == 3
    assert workers(held, most=2) == 2
    assert workers(dataclasses.replace(load(), busy=10)) == 3, "a floor, nothing that is added"


@pytest.mark.parametrize(
    ("changes", "limit", "most"),
    [
        ({"most": 5}, "max", 5),
        ({"database": 3}, "database", 3),
        ({"provider_rate": 20.0}, "provider", 6),
        ({"database": 0}, "database", 0),
    ],
)
def test_a_ceiling_holds_and_is_named(changes: dict[str, object], limit: str, most: int) -> None:
    """A floor does not lift it, nor does what was advised before."""
    policy = dataclasses.replace(POLICY, least=2, **changes)  # type: ignore[arg-type]
    for past in (NEVER, Past(advised=50, needed=50)):
        advice = advise(load(arrivals=100), policy, past)
        assert (advice.workers, advice.limited_by) == (most, limit)
        assert advice.uncapped == 30


def test_the_floor_is_kept_and_is_no_limit() -> None:
    """An idle lane keeps its least."""
    advice = advise(load(arrivals=0), dataclasses.replace(POLICY, least=2), NEVER)
    assert (advice.workers, advice.uncapped, advice.limited_by) == (2, 0, "none")


def test_going_down_waits_until_nothing_in_the_window_needed_more() -> None:
    """Going up does not wait."""
    assert workers(load(), Past(advised=10, needed=9)) == 10
    assert workers(load(), Past(advised=10, needed=8)) == 8
    assert workers(load(), Past(advised=10, needed=0)) == 3
    assert workers(load(arrivals=60), Past(advised=10, needed=0)) == 18


def test_a_small_change_is_not_worth_one() -> None:
    """Up to the tolerance; half as much again on the way down."""
    assert workers(load(arrivals=36), Past(advised=10, needed=0)) == 10
    assert workers(load(arrivals=30), Past(advised=10, needed=9)) == 10
    assert workers(load(arrivals=40), Past(advised=10, needed=0)) == 12


loads = st.builds(
    Load,
    arrivals=st.floats(0, 1e4),
    service_rate=st.floats(1e-3, 1e3),
    backlog=st.integers(0, 100_000),
    age=st.floats(0, 1e6),
)
pasts = st.builds(Past, advised=st.integers(0, 200), needed=st.integers(0, 200))
policies = st.builds(
    Policy,
    objective=st.floats(1, 1e4),
    concurrency=st.integers(1, 64),
    least=st.integers(0, 10),
    most=st.integers(1, 100),
    headroom=st.floats(0, 1),
    tolerance=st.floats(0, 0.5),
    burst=st.integers(0, 10),
    database=st.none() | st.integers(0, 100),
    provider_rate=st.just(0.0) | st.floats(0.01, 1e3),
)


@pytest.mark.bar
@given(load=loads, policy=policies, past=pasts)
def test_no_input_breaks_a_ceiling(load: Load, policy: Policy, past: Past) -> None:
    """Whatever is measured and whatever was advised before."""
    advice = advise(load, policy, past)
    ceiling = min(policy.most, policy.most if policy.database is None else policy.database)
    assert 0 <= advice.workers <= ceiling
    assert 0 <= advice.needed <= ceiling
    assert advice.limited_by in LIMITS


@given(load=loads, policy=policies, past=pasts, more=st.integers(1, 10_000))
def test_more_backlog_never_asks_for_fewer(
    load: Load, policy: Policy, past: Past, more: int
) -> None:
    """Monotone in what waits."""
    deeper = dataclasses.replace(load, backlog=load.backlog + more)
    assert advise(deeper, policy, past).needed >= advise(load, policy, past).needed


def test_the_service_rate_is_learnt_from_jobs_that_end() -> None:
    """Two slots that end a job each ten seconds: a tenth each."""
    service = Service()
    for _ in range(300):
        service = learn(service, busy=10.0, went=1)
    assert service.rate == pytest.approx(0.1)
    for _ in range(300):
        service = learn(service, busy=10.0, went=5)
    assert service.rate == pytest.approx(0.5, rel=0.05)


def test_an_outage_teaches_nothing() -> None:
    """While nothing ends the rate stands; the first jobs after it change it little."""
    before = Service(rate=1.0)
    hung = before
    for _ in range(1000):
        hung = learn(hung, busy=100.0, went=0)
    assert hung.rate == 1.0
    assert learn(hung, busy=5.0, went=5).rate == pytest.approx(1.0, rel=0.25)


def test_long_jobs_are_long_however_often_one_looks() -> None:
    """The busy time between two ends counts, not only that of the round in which one ended."""
    service = Service()
    for look in range(1200):
        service = learn(service, busy=5.0, went=1 if look % 12 == 11 else 0)
    assert service.rate == pytest.approx(1 / 60)
