"""What a scrape says of dependencies: as they stand in the store, and nothing when it is away."""

from __future__ import annotations

from typing import Any

import pytest

import servers
from celery_guard import RetryAfter, dependency
from celery_guard.errors import Throttled
from celery_guard.events import Event
from celery_guard.relay.limits import store
from celery_guard.watch.metrics import PREFIX
from celery_guard.watch.prometheus import GuardCollector
from tests.watch.scrapes import scrape

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize("form", ["redis", "database"])
def test_a_dependency_is_told_as_it_stands(form: str, settings: Any) -> None:
    """Requests, throttles, tokens, permits, pause and breaker, in either store."""
    settings.CELERY_GUARD = {**settings.CELERY_GUARD, "limits": form}
    with dependency("desk", wait=0):
        with pytest.raises(Throttled), dependency("desk", wait=0):
            pass
        busy = scrape(GuardCollector())
    with pytest.raises(RetryAfter), dependency("mail"):
        raise RetryAfter(60)
    found = scrape(GuardCollector())
    assert busy[f"{PREFIX}dependency_permits", ("desk",)] == 1
    assert found[f"{PREFIX}dependency_permits", ("desk",)] == 0
    requests = [found[f"{PREFIX}dependency_requests_total", ("desk", r)] for r in RESULTS]
    assert requests == [1, 1]
    assert found[f"{PREFIX}dependency_throttled_total", ("mail",)] == 1
    assert found[f"{PREFIX}dependency_rate_factor", ("mail",)] == 0.7
    assert found[f"{PREFIX}dependency_slowings_total", ("mail",)] == 0
    assert 0 < found[f"{PREFIX}dependency_paused_seconds", ("mail",)] <= 60
    assert found[f"{PREFIX}dependency_tokens", ("mail",)] == 0
    assert (f"{PREFIX}dependency_tokens", ("desk",)) not in found
    states = {s: found[f"{PREFIX}breaker_state", ("mail", s)] for s in STATES}
    assert states == {"closed": 1, "open": 0, "half_open": 0}


RESULTS = ("granted", "refused")
STATES = ("closed", "open", "half_open")


def test_an_unknown_state_is_absent(
    settings: Any, own_redis: servers.Private, told: list[Event]
) -> None:
    """The store is away: no zero that nobody measured, and the other metrics are there."""
    settings.CELERY_GUARD = {**settings.CELERY_GUARD, "redis": own_redis.url}
    own_redis.kill()
    found = scrape(GuardCollector())
    assert found[f"{PREFIX}collector_up", ()] == 1
    assert not [name for name, _ in found if name.startswith(f"{PREFIX}dependency_")]
    assert "watch.not_collected" in [event.name for event in told]


def test_a_site_without_dependencies_asks_nobody(settings: Any, own_redis: servers.Private) -> None:
    """No store is read for nothing."""
    own_redis.kill()
    settings.CELERY_GUARD = {**settings.CELERY_GUARD, "redis": own_redis.url, "dependencies": {}}
    assert f"{PREFIX}collector_up" in {name for name, _ in scrape(GuardCollector())}
    assert store.read([]) == []
