"""What a scrape says, and what it says when the database doesn't."""

from __future__ import annotations

import psycopg
import pytest
from django.db import OperationalError, connection
from django.test.utils import CaptureQueriesContext
from prometheus_client import CollectorRegistry

import servers
from celery_guard.conf import guard_settings
from celery_guard.events import Event
from celery_guard.models import LaneSnapshot
from celery_guard.watch import prometheus
from celery_guard.watch.counted import ALL_COUNTED
from celery_guard.watch.ledgers import read_all_lanes
from celery_guard.watch.metrics import METRICS, PREFIX
from celery_guard.watch.prometheus import OTHERS, GuardCollector, register
from celery_guard.watch.snapshot import take_snapshot
from tests.factories import make_job
from tests.watch.rows import aged, running
from tests.watch.scrapes import scrape

pytestmark = pytest.mark.django_db(transaction=True)


OF_DEPENDENCIES = (f"{PREFIX}dependency_", f"{PREFIX}breaker_")
DEPTH = ("ready", "scheduled", "running", "retrying")


@pytest.fixture
def collector() -> GuardCollector:
    """A collector of this test's own."""
    return GuardCollector()


def queue(lane: str = "high") -> str:
    return guard_settings().lane(lane).queue


def test_the_numbers_are_those_of_the_snapshot(collector: GuardCollector) -> None:
    """Depth by state, age, objective, slots, outbox: each lane under its queue's name."""
    aged("high", seconds=100)
    make_job("high", due_in=60)
    running("high")
    take_snapshot("default")
    found = scrape(collector)
    depth = {state: found[f"{PREFIX}queue_depth", (queue(), state)] for state in DEPTH}
    assert depth == {"ready": 1, "scheduled": 1, "running": 1, "retrying": 0}
    assert found[f"{PREFIX}queue_oldest_age_seconds", (queue(),)] >= 100
    assert found[f"{PREFIX}queue_objective_seconds", (queue("low"),)] == 3600
    assert found[f"{PREFIX}outbox_pending_rows", ()] == 1
    assert found[f"{PREFIX}collector_up", ()] == 1
    assert found[f"{PREFIX}snapshot_timestamp_seconds", ()] > 1.7e9


def test_an_empty_queue_reads_zero(collector: GuardCollector) -> None:
    """Measured and empty is 0, not absent."""
    take_snapshot("default")
    found = scrape(collector)
    assert found[f"{PREFIX}queue_depth", (queue(), "ready")] == 0
    assert found[f"{PREFIX}queue_oldest_age_seconds", (queue(),)] == 0


def test_what_is_not_known_is_absent(collector: GuardCollector) -> None:
    """Nothing measured yet: objectives and the collector's health, no number about queues."""
    found = {name for name, _ in scrape(collector) if not name.startswith(OF_DEPENDENCIES)}
    assert found == {
        f"{PREFIX}queue_objective_seconds",
        f"{PREFIX}collector_up",
        f"{PREFIX}collect_duration_seconds",
    }
    take_snapshot("default")
    assert f"{PREFIX}dead_letters" not in {name for name, _ in scrape(collector)}


def test_every_metric_in_a_scrape_was_described_and_the_other_way_round(
    collector: GuardCollector,
) -> None:
    """The list of metrics is the whole list."""
    take_snapshot("default")
    LaneSnapshot.objects.update(dead_letters=0)
    described = {family.name for family in collector.describe()}
    collected = {family.name for family in collector.collect()}
    metrics = (*METRICS, *ALL_COUNTED, *OTHERS)
    assert described == collected == {metric.full_name for metric in metrics}
    assert all(metric.help for metric in metrics)


def test_registering_asks_the_database_nothing(collector: GuardCollector) -> None:
    """Every management command registers; none of them may query for it."""
    with CaptureQueriesContext(connection) as captured:
        CollectorRegistry().register(collector)
    assert not captured.captured_queries


def test_a_second_registration_is_refused_quietly(told: list[Event]) -> None:
    """``ready()`` may run twice; the names are taken by ourselves."""
    registry = CollectorRegistry()
    assert register(registry)
    assert not register(registry)
    assert [event.name for event in told] == ["watch.metrics_not_registered"]


def test_a_scrape_is_one_query_on_a_connection_of_its_own(collector: GuardCollector) -> None:
    """However many lanes there are; a transaction of the scraping request is left alone."""
    take_snapshot("default")
    with CaptureQueriesContext(connection) as captured:
        scrape(collector)
        assert not captured.captured_queries
        assert read_all_lanes()
    assert len(captured) == 1


def test_a_database_that_refuses_says_down_and_no_zero(
    collector: GuardCollector, monkeypatch: pytest.MonkeyPatch, told: list[Event]
) -> None:
    """``collector_up`` is 0 and the queues are absent."""
    take_snapshot("default")

    def refuse() -> list[object]:
        raise OperationalError("connection refused")

    monkeypatch.setattr(collector._lanes, "_read", refuse)
    found = scrape(collector)
    assert found[f"{PREFIX}collector_up", ()] == 0
    assert not [name for name, _ in found if name.endswith(("_depth", "_age_seconds", "_rows"))]
    assert [event.name for event in told] == ["watch.not_collected"]


@pytest.mark.bar
def test_a_frozen_database_holds_no_scrape_up(
    own_server: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that answers neither yes nor no: the scrape ends within its limit and says so."""
    monkeypatch.setattr(prometheus, "TIME_MOST", 0.2)
    server = own_server("postgres")  # type: ignore[operator]
    collector = GuardCollector()
    monkeypatch.setattr(collector._lanes, "_read", lambda: _ask(server))
    assert collector._lanes.get() == []
    server.freeze()
    try:
        assert scrape(collector)[f"{PREFIX}collector_up", ()] == 0
    finally:
        server.thaw()


def _ask(server: servers.Private) -> list[object]:
    with psycopg.connect(server.url) as asked:
        asked.execute("SELECT 1").fetchone()
    return []
