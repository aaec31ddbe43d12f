"""When a refused caller is told to come back."""

import pytest

from celery_guard.conf import guard_settings
from celery_guard.enqueue.admission.measured import Measured
from celery_guard.enqueue.admission.pressure import closing
from celery_guard.enqueue.admission.retry_after import of_strain, of_tenant, retry_after, spread
from tests.enqueue.admission.conftest import Limit


def lane_with(**found: object) -> Measured:
    """A measured lane."""
    usual: dict[str, object] = {
        "ready": 100,
        "age": 0.0,
        "wait": None,
        "arrivals": 0.0,
        "completions": 10.0,
        "stale": False,
        "closed": False,
    }
    return Measured(**{**usual, **found})  # type: ignore[arg-type]


def test_it_is_the_time_until_a_fifth_has_gone(limit: Limit) -> None:
    """1,000 deep at 10 a second: 20 s until 800, and up to 30 % more."""
    limit(medium={"depth": 1000})
    lane = guard_settings().lane("medium")
    said = [retry_after(lane, lane_with(ready=1000), "depth") for _ in range(200)]
    assert 20 <= min(said) < max(said) <= 26


def test_it_shrinks_as_the_lane_drains_faster(limit: Limit) -> None:
    """AD-01: twice the rate, half the wait; arrivals count against it."""
    limit(medium={"depth": 1000})
    lane = guard_settings().lane("medium")

    def least(**found: object) -> float:
        return min(retry_after(lane, lane_with(ready=1000, **found), "depth") for _ in range(300))

    assert least(completions=20.0) == pytest.approx(10, rel=0.05)
    assert least(completions=20.0, arrivals=10.0) == pytest.approx(20, rel=0.05)


@pytest.mark.django_db
def test_a_lane_that_gives_way_waits_for_the_one_above(limit: Limit) -> None:
    """60 of 100 close the lowest lane; 3 a second leave until 48 are left, whatever it has itself."""
    limit(medium={"depth": 100})
    lanes = {"medium": lane_with(ready=60, completions=3.0), "low": lane_with(ready=1)}
    strain = closing("default", guard_settings().lane("low"), lanes)
    assert strain is not None
    assert strain.reason == "gives_way"
    said = [of_strain(strain, lanes) for _ in range(200)]
    assert 4 <= min(said) < max(said) <= 5.2


@pytest.mark.django_db
def test_what_was_closed_stays_closed_for_two_snapshots(limit: Limit) -> None:
    """Nobody is told to come back before."""
    limit(medium={"depth": 100}, snapshot={"every": 5})
    lanes = {"medium": lane_with(ready=60, completions=100.0)}
    strain = closing("default", guard_settings().lane("low"), lanes)
    assert strain is not None
    assert min(of_strain(strain, lanes) for _ in range(50)) >= 10


def test_it_is_capped_and_still_spread(limit: Limit) -> None:
    """A lane that does not drain says the cap, and not everybody the same second."""
    limit(medium={"depth": 10_000}, admission={"retry_after": 60})
    lane = guard_settings().lane("medium")
    slow = lane_with(ready=20_000, completions=0.01)
    said = {round(retry_after(lane, slow, "depth"), 3) for _ in range(200)}
    assert max(said) <= 60
    assert min(said) >= 60 / 1.3
    assert len(said) > 50


def test_it_is_never_below_a_second() -> None:
    """Nobody is told to hammer."""
    assert min(spread(0.0) for _ in range(100)) >= 1


def test_an_unknown_rate_says_five_seconds() -> None:
    """No snapshot, a stale one, or too few completions."""
    lane = guard_settings().lane("medium")
    for found in (None, lane_with(stale=True), lane_with(completions=None)):
        assert 5 <= retry_after(lane, found, "depth") <= 6.5
        assert 5 <= of_tenant(100, found) <= 6.5


def test_a_tenant_waits_for_its_own_jobs() -> None:
    """Its hundred of the lane's thousand are served a tenth of the lane's rate."""
    said = [of_tenant(100, lane_with(ready=1000)) for _ in range(200)]
    assert 20 <= min(said) <= max(said) <= 26
