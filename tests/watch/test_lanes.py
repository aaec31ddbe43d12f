"""Reading the snapshot: ages as of now."""

from __future__ import annotations

import dataclasses
import uuid
from datetime import timedelta

import pytest
from django.utils import timezone
from pytest_django import Settings

from celery_guard.models import Job, LaneSnapshot
from celery_guard.relay.presence import Worker, report
from celery_guard.watch.lanes import LaneView, oldest_snapshot, read_lanes
from celery_guard.watch.ledgers import read_all_lanes, together
from celery_guard.watch.snapshot import take_snapshot
from celery_guard.watch.spoken import spoken
from tests.project.shop.tasks import mark
from tests.relay.ledger import queue_of
from tests.watch.rows import aged

pytestmark = [pytest.mark.django_db, pytest.mark.mariadb]


def lane(name: str = "high") -> LaneView:
    return next(view for view in read_lanes("default") if view.name == name)


def test_the_age_grows_while_nobody_measures() -> None:
    """What is stored is a time, so a dead beat can't hide a growing wait."""
    aged("high", seconds=100)
    take_snapshot("default")
    first = lane().age
    assert first >= 100
    assert lane().age > first


def test_ages_are_true_on_a_site_without_time_zones(settings: Settings) -> None:
    """What the database's clock wrote is compared with what it says now, whatever Django reads it as."""
    settings.USE_TZ, settings.TIME_ZONE = False, "Asia/Tokyo"
    mark.delay("a")
    served = Job.objects.get().lane
    report("default", uuid.uuid4(), Worker(name="w@host", queues=(queue_of(served),), slots=2))
    take_snapshot("default")
    view = lane(served)
    assert (view.ready, view.scheduled, view.slots) == (1, 0, 2)
    assert 0 < view.age < 60
    assert 0 <= view.snapshot_age < 60


def test_lanes_come_in_the_settings_order_with_their_queues() -> None:
    """High before low, whatever the alphabet says."""
    take_snapshot("default")
    assert [view.name for view in read_lanes("default")] == ["high", "medium", "low"]
    assert lane("high").queue.endswith("high")


def test_a_lane_is_late_past_its_objective(settings: Settings) -> None:
    """Late is about the lane's own objective."""
    settings.CELERY_GUARD = {"lanes": {"high": {"objective": 30}, "low": {"objective": 300}}}
    aged("high", seconds=100)
    aged("low", seconds=100)
    take_snapshot("default")
    assert (lane("high").late, lane("low").late) == (True, False)


def test_stopped_is_late_with_nothing_running_and_nothing_ending() -> None:
    """A long line that moves is late, not stopped."""
    aged("high", seconds=100)
    take_snapshot("default")
    assert lane().stopped
    LaneSnapshot.objects.update(running=1)
    assert not lane().stopped
    LaneSnapshot.objects.update(running=0, completions_per_second=2)
    assert not lane().stopped


def test_a_snapshot_goes_stale(settings: Settings) -> None:
    """After three missed measurements nobody should believe it."""
    settings.CELERY_GUARD = {"snapshot": {"every": 5, "stale_after": 3}}
    take_snapshot("default")
    assert not lane().stale
    LaneSnapshot.objects.update(taken_at=timezone.now() - timedelta(seconds=21))
    assert lane().stale


def test_a_short_period_makes_a_snapshot_no_sooner_stale(settings: Settings) -> None:
    """A relay that died with the duty is waited for, and a slow duty before it: that is not blindness."""
    settings.CELERY_GUARD = {"snapshot": {"every": 0.5, "stale_after": 3}}
    take_snapshot("default")
    LaneSnapshot.objects.update(taken_at=timezone.now() - timedelta(seconds=10))
    assert not lane().stale
    LaneSnapshot.objects.update(taken_at=timezone.now() - timedelta(seconds=16))
    assert lane().stale


def test_nothing_measured_is_no_age() -> None:
    """An empty table is not a fresh snapshot."""
    assert read_lanes("default") == []
    assert oldest_snapshot([]) is None


def test_rates_below_zero_are_shown_as_zero() -> None:
    """The stored averages may dip below; nobody sees that."""
    take_snapshot("default")
    LaneSnapshot.objects.update(arrivals_per_second=-1)
    assert lane().arrivals == 0


def test_a_lane_in_two_ledgers_is_one_lane() -> None:
    """What adds up is added; of ages, bounds and measurements the worse counts."""
    aged("high", seconds=100)
    take_snapshot("default")
    one = dataclasses.replace(lane(), dead_letters=1, slots=4, completions_total=5)
    other = dataclasses.replace(one, age=7.0, snapshot_age=90.0, capped=True, slots=2)
    both = together(one, other)
    assert (both.ready, both.completions_total, both.dead_letters) == (2, 10, 2)
    assert (both.age, both.snapshot_age, both.capped) == (one.age, 90.0, True)
    assert both.slots == 4
    assert together(one, dataclasses.replace(other, dead_letters=None)).dead_letters is None


def test_the_lanes_of_all_ledgers_are_read() -> None:
    """With one ledger that is what this ledger holds."""
    take_snapshot("default")
    assert [view.name for view in read_all_lanes()] == ["high", "medium", "low"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (0.42, "0.4 s"), (12.3, "12 s"), (90, "1.5 min"), (7200, "2 h"), (2e5, "2.3 d")],
)
def test_seconds_are_spoken_in_their_largest_unit(seconds: float, text: str) -> None:
    """Operators read minutes and hours."""
    assert spoken(seconds) == text
