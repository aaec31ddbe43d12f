"""How near the database is to its most connections."""

from __future__ import annotations

import psycopg
import pytest
from django.db import OperationalError, connection, connections

from celery_guard.models import LaneSnapshot
from celery_guard.watch import database
from celery_guard.watch.metrics import PREFIX
from celery_guard.watch.prometheus import GuardCollector
from celery_guard.watch.snapshot import take_snapshot
from tests.watch.scrapes import Samples, scrape

pytestmark = [pytest.mark.django_db(transaction=True)]

HELD, MOST = f"{PREFIX}db_connections", f"{PREFIX}db_connections_limit"


def measured() -> Samples:
    take_snapshot("default")
    return scrape(GuardCollector())


@pytest.mark.bar
@pytest.mark.mariadb
def test_the_servers_connections_are_counted_against_its_limit() -> None:
    """By what they do; this test's own is among them."""
    found = measured()
    held = {labels: value for (name, labels), value in found.items() if name == HELD}
    assert held["default", "active"] >= 1
    assert sum(held.values()) <= found[MOST, ("default",)]


@pytest.mark.skipif(connection.vendor != "postgresql", reason="PostgreSQL names this state")
def test_a_transaction_that_does_nothing_is_told_apart() -> None:
    """Whoever holds one open holds up everybody's clean-up."""
    with psycopg.connect(**_where()) as other:
        other.execute("SELECT 1")
        assert measured()[HELD, ("default", "idle_in_transaction")] >= 1


def _where() -> dict[str, object]:
    params = connections["default"].get_connection_params()
    return {
        name: params[name]
        for name in ("dbname", "user", "password", "host", "port")
        if name in params
    }


def test_a_server_that_does_not_count_stops_no_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is told then, and what was told before is forgotten."""

    def refuse(_: object) -> database.Numbers:
        raise OperationalError("permission denied")

    assert (MOST, ("default",)) in measured()
    monkeypatch.setattr(database, "_COUNTS", dict.fromkeys(database._COUNTS, refuse))
    assert (MOST, ("default",)) not in measured()
    assert LaneSnapshot.objects.exists()


def test_a_process_tells_how_its_own_pool_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    """In use, free, the most, and who waits; without a pool there is nothing to tell."""
    pool = f"{PREFIX}db_pool_connections"
    assert not [name for name, _ in scrape(GuardCollector()) if name.startswith(f"{PREFIX}db_pool")]
    stats = {"pool_size": 10, "pool_available": 3, "pool_max": 12, "requests_waiting": 2}
    monkeypatch.setattr(database, "pool_stats", lambda using: stats)
    found = scrape(GuardCollector())
    assert (found[pool, ("default", "in_use")], found[pool, ("default", "free")]) == (7, 3)
    assert found[f"{pool}_limit", ("default",)] == 12
    assert found[f"{PREFIX}db_pool_waiting", ("default",)] == 2
