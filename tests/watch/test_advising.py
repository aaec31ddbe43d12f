"""The advice as the snapshot keeps it, and as it is given out."""

from __future__ import annotations

import json
from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.db import OperationalError, connection
from django.test import Client
from django.utils import timezone
from pytest_django import Settings

from celery_guard.models import Job, LaneSample, LaneSnapshot
from celery_guard.watch import samples
from celery_guard.watch.lanes import read_lanes
from celery_guard.watch.prometheus import collector
from celery_guard.watch.scaling import LIMITS
from celery_guard.watch.snapshot import take_snapshot
from tests.watch.rows import aged, retrying, running
from tests.watch.scrapes import scrape

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.mariadb]

TOKEN = {"headers": {"Authorization": "Bearer x"}}


def lane(name: str = "high") -> LaneSnapshot:
    return LaneSnapshot.objects.get(lane=name)


def take_fresh_snapshot() -> None:
    """One that is not stale when it is looked at, however slow this machine is."""
    take_snapshot("default")
    LaneSnapshot.objects.update(taken_at=timezone.now() + timedelta(minutes=1))


def measure(**before: object) -> LaneSnapshot:
    """A snapshot, and ten seconds later another with the lane as it was ``before`` it."""
    take_snapshot("default")
    then = timezone.now() - timedelta(seconds=10)
    LaneSnapshot.objects.filter(lane="high").update(**{"taken_at": then, **before})
    take_snapshot("default")
    return lane()


def test_every_lane_of_the_settings_gets_advice() -> None:
    """An idle one its least."""
    take_snapshot("default")
    assert set(LaneSnapshot.objects.values_list("desired_workers", "limited_by")) == {(1, "none")}


def test_a_load_is_advised_on_by_its_rates(settings: Settings) -> None:
    """39 a second at 2 a second and slot: 24 slots with headroom, 6 workers."""
    settings.CELERY_GUARD = {**settings.CELERY_GUARD, "scale": {"concurrency": 4}}
    found = measure(arrivals_per_second=39 / 0.7165, service_rate=2.0)
    assert found.desired_workers == 6
    assert found.desired_uncapped == 6


def test_what_a_limit_holds_back_needs_no_workers() -> None:
    """Due once, put off since: more workers would not start it."""
    for _ in range(5):
        aged("high", seconds=100, due_at=timezone.now() + timedelta(seconds=60))
    retrying("high")
    take_snapshot("default")
    assert (lane().ready, lane().held) == (5, 5)
    assert (lane().desired_workers, lane().desired_uncapped) == (1, 0)
    aged("high", seconds=100)
    take_snapshot("default")
    assert lane().desired_uncapped == 2


def test_the_database_is_shared_in_the_order_of_the_lanes(settings: Settings) -> None:
    """High gets what it needs; the others keep their least; together they never pass it."""
    settings.CELERY_GUARD = {
        **settings.CELERY_GUARD,
        "scale": {"concurrency": 4, "connections": 40, "connections_per_slot": 2},
    }
    take_snapshot("default")
    then = timezone.now() - timedelta(seconds=10)
    LaneSnapshot.objects.update(arrivals_per_second=100, service_rate=1.0, taken_at=then)
    take_snapshot("default")
    found = {row.lane: (row.desired_workers, row.limited_by) for row in LaneSnapshot.objects.all()}
    assert found == {"high": (3, "database"), "medium": (1, "database"), "low": (1, "database")}


def test_a_snapshot_without_ends_keeps_what_was_learnt() -> None:
    """The slots' busy time goes on until a job ends."""
    running("high")
    found = measure(service_rate=0.5, running=1)
    assert found.service_rate == 0.5
    assert found.busy_seconds == pytest.approx(10, abs=3)


def test_busy_slots_are_a_moving_average_and_keep_their_workers() -> None:
    """Nine jobs of hours, no arrivals, a window that remembers nothing: three workers of 4 stay."""
    for _ in range(9):
        running("high")
    take_snapshot("default")
    assert lane().busy_slots == 9
    found = measure(busy_slots=9.0, running=9, desired_workers=3, arrivals_per_second=0.0)
    assert (found.busy_slots, found.desired_uncapped, found.desired_workers) == (9, 3, 3)
    Job.objects.all().delete()
    assert 5 < measure(busy_slots=9.0).busy_slots < 9


def test_the_minute_keeps_its_worst_and_the_window_looks_back_on_it() -> None:
    """A peak between two looks is not forgotten; older days are."""
    old = samples.minute_of(timezone.now() - timedelta(days=2))
    LaneSample.objects.create(lane="high", minute=old)
    take_snapshot("default")
    assert not LaneSample.objects.filter(minute=old).exists()
    LaneSample.objects.filter(lane="high").update(needed=9, age=500)
    LaneSnapshot.objects.update(desired_workers=12)
    take_snapshot("default")
    newest = LaneSample.objects.filter(lane="high").latest("minute")
    assert (newest.advised, lane().desired_workers) == (9, 9)


@pytest.mark.urls("tests.watch.urls")
def test_the_page_for_autoscalers_is_closed_without_its_token(
    client: Client, settings: Settings
) -> None:
    """As the metrics are."""
    take_fresh_snapshot()
    settings.CELERY_GUARD = {**settings.CELERY_GUARD, "metrics_token": ""}
    assert client.get("/guard/scale.json", **TOKEN).status_code == 404
    settings.CELERY_GUARD = {**settings.CELERY_GUARD, "metrics_token": "x"}
    assert client.get("/guard/scale.json").status_code == 401
    answer = client.get("/guard/scale.json", **TOKEN)
    assert answer["Cache-Control"] == "no-store"
    assert answer.json()["lanes"]["high"]["desired_workers"] == 1
    assert set(client.get("/guard/scale.json?lane=low", **TOKEN).json()["lanes"]) == {"low"}
    assert client.get("/guard/scale.json?lane=none", **TOKEN).status_code == 503


@pytest.mark.bar
@pytest.mark.urls("tests.watch.urls")
def test_old_advice_is_never_given(
    client: Client, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stale, never measured, database away: 503 and exit code 2, no number."""
    settings.CELERY_GUARD = {**settings.CELERY_GUARD, "metrics_token": "x"}
    assert client.get("/guard/scale.json", **TOKEN).status_code == 503
    take_snapshot("default")
    LaneSnapshot.objects.update(taken_at=timezone.now() - timedelta(hours=1))
    answer = client.get("/guard/scale.json", **TOKEN)
    assert (answer.status_code, b"stale" in answer.content) == (503, True)
    with pytest.raises(CommandError, match="stale") as raised:
        call_command("guard_scale", stdout=(printed := StringIO()))
    assert (raised.value.returncode, printed.getvalue()) == (2, "")

    def refuse() -> list[object]:
        raise OperationalError("connection refused")

    monkeypatch.setattr(collector()._lanes, "_read", refuse)
    assert client.get("/guard/scale.json", **TOKEN).status_code == 503


def test_the_command_prints_for_people_scripts_and_programs() -> None:
    """A line a lane; one number; one object."""
    take_fresh_snapshot()
    LaneSnapshot.objects.filter(lane="high").update(
        desired_workers=5, desired_uncapped=9, limited_by="max", workers=2
    )

    def printed(*options: str) -> str:
        call_command("guard_scale", *options, stdout=(out := StringIO()))
        return out.getvalue().strip()

    assert printed().splitlines()[0] == "high: 5 workers (9 but for max), 2 run"
    assert printed("--lane", "high") == "5"
    assert json.loads(printed("--json"))["lanes"]["high"]["limited_by"] == "max"


def test_the_advice_is_scraped() -> None:
    """With the bound that limits it as a set of states."""
    take_snapshot("default")
    LaneSnapshot.objects.update(desired_workers=5, desired_uncapped=9, limited_by="max", workers=2)
    queue = next(view.queue for view in read_lanes("default") if view.name == "high")
    found = scrape(collector())
    assert found["celery_guard_desired_workers", (queue,)] == 5
    assert found["celery_guard_workers", (queue,)] == 2
    limited = {by: found["celery_guard_scale_limited", (by, queue)] for by in LIMITS}
    assert limited == {"none": 0, "max": 1, "database": 0, "provider": 0}


def test_a_relay_of_the_release_before_can_still_measure() -> None:
    """During a roll-out it writes the columns that it knows; the database fills in the rest."""
    names = (
        *("lane", "taken_at", "ready", "scheduled", "sent", "running", "retrying", "capped"),
        *("pending", "arrivals_per_second", "completions_per_second", "completions_total", "slots"),
    )
    places = ", ".join(["%s"] * len(names))
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO celery_guard_lanesnapshot ({', '.join(names)}) VALUES ({places})",
            ["high", timezone.now(), *[0] * 5, False, *[0] * 5],
        )
    assert (lane().workers, lane().limited_by, lane().desired_workers) == (0, "", None)
    take_snapshot("default")
    assert lane().desired_workers == 1
