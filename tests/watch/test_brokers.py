"""What waits in the broker, guarded or not, beside what the ledger knows."""

from __future__ import annotations

import time

import pytest

import servers
from celery_guard.conf import guard_settings
from celery_guard.events import Event
from celery_guard.models import Counter, LaneSnapshot
from celery_guard.watch import beside, brokers
from celery_guard.watch.brokers import queues
from celery_guard.watch.deadline import Deadline
from celery_guard.watch.metrics import PREFIX
from celery_guard.watch.prometheus import GuardCollector
from celery_guard.watch.snapshot import take_snapshot
from tests.kit.brokers import on_broker
from tests.project.shop.tasks import plain
from tests.watch.scrapes import Samples, scrape

pytestmark = [pytest.mark.django_db(transaction=True)]

MESSAGES = f"{PREFIX}broker_queue_messages"
AGE = f"{PREFIX}broker_queue_oldest_age_seconds"


def measured() -> Samples:
    take_snapshot("default")
    return scrape(GuardCollector())


def queue() -> str:
    return guard_settings().lane("medium").queue


@pytest.mark.bar
@pytest.mark.mariadb
def test_unguarded_work_is_seen_on_every_broker(broker: str) -> None:
    """How much waits, of all priorities; its age where the broker shows a message that says it."""
    ago = time.time() - 100
    for priority in (0, 9):
        plain.apply_async(("x",), priority=priority, headers={"sent_at": ago})
    found = measured()
    assert found[MESSAGES, (queue(),)] == 2
    assert found[MESSAGES, (guard_settings().lane("high").queue,)] == 0
    ages = [value for (name, _), value in found.items() if name == AGE]
    assert [100 <= age < 1000 for age in ages] == ([True] if broker.startswith("redis") else [])


def test_the_queues_of_the_app_and_of_its_workers_are_looked_at() -> None:
    """Work without a lane is seen too; names without end are not."""
    from celery_guard.relay.presence import Worker

    worker = Worker(name="w", queues=("elsewhere", queue()), slots=1)
    found = queues([worker])
    assert {*(lane.queue for lane in guard_settings().lanes.values()), "elsewhere"} <= set(found)
    many = Worker(name="w", queues=tuple(f"made-{n}" for n in range(100)), slots=1)
    assert len(queues([many])) == brokers.QUEUES_MOST


def test_a_broker_that_is_away_stops_no_snapshot(told: list[Event]) -> None:
    """The lanes are written; of the broker nothing is told, above all no zero."""
    assert measured()[MESSAGES, (queue(),)] == 0
    with on_broker("redis://127.0.0.1:1/0"):
        found = measured()
    assert not [name for name, _ in found if name.startswith(f"{PREFIX}broker_")]
    assert LaneSnapshot.objects.exists()
    assert "watch.broker_not_asked" in {event.name for event in told}


def test_a_frozen_broker_holds_a_snapshot_for_its_limit_only(
    own_redis: servers.Private, monkeypatch: pytest.MonkeyPatch, told: list[Event]
) -> None:
    """It answers neither yes nor no; the wait for it has an end of its own."""
    look = brokers._Look()
    monkeypatch.setattr(look, "_reading", Deadline(look._read, 0.2))
    monkeypatch.setattr(brokers, "_look", look)
    own_redis.freeze()
    try:
        with on_broker(own_redis.url):
            take_snapshot("default")
    finally:
        own_redis.thaw()
    facts = [event.facts for event in told if event.name == "watch.broker_not_asked"]
    assert facts == [{"error": "no answer in time"}]
    assert not Counter.objects.filter(name=brokers.READY).exists()


@pytest.mark.mariadb
def test_what_nobody_measures_any_more_is_told_by_nobody() -> None:
    """An old number of a broker would be a lie; a queue that has gone is forgotten."""
    assert measured()[MESSAGES, (queue(),)] == 0
    Counter.objects.create(name=brokers.READY, lane="gone", value=5)
    assert (MESSAGES, ("gone",)) not in measured()
    Counter.objects.filter(name=brokers.BROKER.name).update(value=1000)
    assert (MESSAGES, (queue(),)) not in scrape(GuardCollector())


def test_a_queue_with_too_long_a_name_is_left_out() -> None:
    """The table could not take it, and the others must not go with it."""
    from celery_guard.jobs.clock import database_time

    numbers = {brokers.READY: {"q" * 65: 1, "ok": 2}}
    beside.keep("default", brokers.BROKER, numbers, database_time("default"))
    assert beside.read("default", brokers.BROKER).of(brokers.READY) == {"ok": 2}
