"""The snapshot duty: one row a lane, true at its time."""

from __future__ import annotations

import uuid
from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from celery_guard.conf import guard_settings
from celery_guard.events import Event
from celery_guard.models import Job, LaneSnapshot, WorkerPresence
from celery_guard.relay.duties import Rota, registered
from celery_guard.watch import counters, snapshot
from celery_guard.watch.snapshot import take_snapshot
from tests.factories import make_job
from tests.watch.rows import aged, running

pytestmark = [pytest.mark.django_db, pytest.mark.mariadb]


def row(lane: str = "high") -> LaneSnapshot:
    return LaneSnapshot.objects.get(lane=lane)


def test_every_lane_of_the_settings_has_a_row_even_when_empty() -> None:
    """An empty lane reads 0 because it was measured, not because it is missing."""
    take_snapshot("default")
    assert set(LaneSnapshot.objects.values_list("lane", flat=True)) == set(guard_settings().lanes)
    assert (row().ready, row().oldest_due_at) == (0, None)


def test_a_queue_outside_all_lanes_has_a_row_while_it_holds_jobs() -> None:
    """A vanished queue's row vanishes, ended jobs or not."""
    job = make_job("elsewhere")
    take_snapshot("default")
    assert row("elsewhere").ready == 1
    Job.objects.filter(pk=job.pk).update(state="succeeded", due_at=None, finished_at=timezone.now())
    take_snapshot("default")
    assert not LaneSnapshot.objects.filter(lane="elsewhere").exists()


def test_queue_names_without_end_are_left_out(
    monkeypatch: pytest.MonkeyPatch, told: list[Event]
) -> None:
    """A queue per request makes neither endless rows nor an endless measurement."""
    monkeypatch.setattr(snapshot, "LANES_MOST", 2)
    for number in range(4):
        make_job(f"made-{number}")
    take_snapshot("default")
    assert LaneSnapshot.objects.count() == len(guard_settings().lanes) + 2
    assert [event.facts for event in told] == [{"count": 2}]


def test_the_row_says_when_it_was_measured_by_the_databases_clock() -> None:
    """A second run renews the time and the numbers."""
    take_snapshot("default")
    first = row().taken_at
    aged("high", seconds=30)
    take_snapshot("default")
    assert row().taken_at > first
    assert row().ready == 1


def test_slots_are_those_of_living_workers_of_the_queue() -> None:
    """A worker that no longer reports has no slots."""
    queue = guard_settings().lane("high").queue
    for slots, ago in ((4, 0), (8, 3600)):
        WorkerPresence.objects.create(
            owner=uuid.uuid4(),
            name="w",
            queues=[queue],
            slots=slots,
            seen_at=timezone.now() - timedelta(seconds=ago),
        )
    take_snapshot("default")
    assert (row().slots, row("low").slots) == (4, 0)


def test_rates_come_from_what_went_and_what_is_there_more() -> None:
    """Ten jobs ended and five more wait since the last snapshot: more came than went."""
    # What other tests of this process have counted and not written yet.
    counters.tally.flush()
    take_snapshot("default")
    before = row().completions_total
    an_age_ago = timezone.now() - timedelta(seconds=1000)
    LaneSnapshot.objects.update(taken_at=an_age_ago)
    for _ in range(10):
        counters.tally.count("default", counters.COMPLETIONS, "high")
    counters.tally.flush()
    for _ in range(5):
        make_job("high")
    take_snapshot("default")
    assert row().completions_total - before == 10
    assert row().completions_per_second == pytest.approx(0.01, rel=0.05)
    assert row().arrivals_per_second == pytest.approx(0.015, rel=0.05)


def test_a_lane_that_cannot_be_measured_in_time_grows_stale_alone(
    monkeypatch: pytest.MonkeyPatch, told: list[Event]
) -> None:
    """Its old row stays as it is; the other lanes are renewed."""
    if connection.vendor != "postgresql":
        pytest.skip("only PostgreSQL bounds a statement without session state")
    take_snapshot("default")
    before = {lane: row(lane).taken_at for lane in ("high", "low")}
    usual = snapshot.measure

    def slow(using: str, lane: str, *rest: object) -> object:
        if lane == "high":
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_sleep(5)")
        return usual(using, lane, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(snapshot, "measure", slow)
    monkeypatch.setattr(snapshot, "TIME_MOST", 0.05)
    take_snapshot("default")
    assert row("high").taken_at == before["high"]
    assert row("low").taken_at > before["low"]
    assert [(event.name, event.facts["lane"]) for event in told] == [
        ("watch.lane_not_measured", "high")
    ]


def test_a_snapshot_costs_few_queries_whatever_the_lanes_hold() -> None:
    """The number of queries depends on the lanes alone."""
    take_snapshot("default")
    for _ in range(20):
        make_job("high")
        running("low")
    with CaptureQueriesContext(connection) as captured:
        take_snapshot("default")
    # Three lanes with four or five counts each, and what surrounds them.
    assert len(captured) <= 65


def test_the_relays_do_it_as_a_duty_in_its_rhythm() -> None:
    """Both duties of this room are known to the rota, and a round does them."""
    names = {duty.name for duty in registered()}
    assert {"snapshot", "dead_letters"} <= names
    done = Rota("default").do_what_is_due()
    assert {"snapshot", "dead_letters"} <= set(done)
    assert LaneSnapshot.objects.exists()
