"""Jobs of a throttled dependency are sent when they may start, and hold nobody up."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

import servers
from celery_guard.enqueue.steering.turning import turn_on
from celery_guard.jobs.clock import DatabaseNow
from celery_guard.jobs.placing import placed
from celery_guard.models import Job
from celery_guard.relay.fair import Turns
from celery_guard.relay.limits import changes, store
from celery_guard.relay.limits.answers import Verdict
from celery_guard.relay.limits.changing import set_limits
from celery_guard.relay.limits.rules import rules_of
from celery_guard.relay.placing import Places
from tests.factories import make_job
from tests.kit.wait import wait_for
from tests.relay.ledger import lead

pytestmark = [pytest.mark.mariadb, pytest.mark.django_db(transaction=True)]


@pytest.fixture(autouse=True)
def _nothing_known() -> Iterator[None]:
    changes.forget()
    store._patience.forget()
    yield
    changes.forget()
    store._patience.forget()


@pytest.fixture(params=["redis", "database"])
def provider(request: pytest.FixtureRequest, settings: Any) -> str:
    """A dependency of its own, 100 a minute and 4 at once, its limits kept in each store."""
    name = f"provider-{uuid.uuid4().hex}"
    settings.CELERY_GUARD = {
        **settings.CELERY_GUARD,
        "limits": request.param,
        "lanes": {**settings.CELERY_GUARD["lanes"], "high": {"window": None}},
        "dependencies": {name: {"rate": "100/m", "burst": 4, "breaker": {"samples": 1}}},
    }
    return name


class Leader:
    """A relay's part in it."""

    def __init__(self) -> None:
        self.places = Places("default")
        self.turns = Turns("default", self.places)
        self.lead = lead("high")

    def send(self, batch: int = 100) -> list[int]:
        """What one look sends."""
        return [s.id for s in self.turns.release(self.lead, batch, [])]

    def looks(self) -> set[str]:
        """One look at the store, and its answer."""
        self.places._looked_at = 0.0
        return self.places.look(["high"])


def backlog(dependency: str, count: int, **more: Any) -> list[int]:
    """Due jobs of a dependency, the oldest first."""
    return [make_job(dependency=dependency, due_in=-60 + n / 1000, **more).pk for n in range(count)]


def waits(ids: list[int]) -> list[float]:
    """Seconds until each of those jobs is due, by the database's clock."""
    found = Job.objects.filter(pk__in=ids).annotate(now=DatabaseNow())
    return [(job.due_at - job.now).total_seconds() for job in found.order_by("pk")]


def reasons(ids: list[int]) -> set[str]:
    """Why those jobs wait."""
    return set(Job.objects.filter(pk__in=ids).values_list("reason", flat=True))


@pytest.mark.bar
def test_a_backlog_is_spread_over_its_rate_and_others_pass(provider: str) -> None:
    """Four go at once; each of the others waits in the database for a time of its own."""
    leader, slow = Leader(), backlog(provider, 40)
    others = [make_job(due_in=-1).pk for _ in range(3)]
    assert leader.send(4) == slow[:4]
    assert leader.send() == others, "behind forty that may not start"
    assert leader.send() == []
    steps = [later - sooner for sooner, later in itertools.pairwise(waits(slow[4:]))]
    # 0.6 s each; the statement reads the clock for each row anew.
    assert all(0.5 < step < 0.7 for step in steps)
    assert waits(slow[-1:])[0] <= 38 * 0.6
    assert reasons(slow[4:]) == {"rate"}
    assert set(Job.objects.filter(pk__in=slow[4:]).values_list("sends", "failures")) == {(0, 0)}


def test_whoever_has_a_place_is_sent_when_it_is_due(provider: str) -> None:
    """Not placed again behind all the others."""
    leader, slow = Leader(), backlog(provider, 8)
    leader.send(4)
    assert leader.send() == []
    Job.objects.filter(pk=slow[4]).update(due_at=timezone.now() - timedelta(seconds=1))
    assert leader.send() == slow[4:5]


def test_without_a_backlog_nothing_is_looked_at_twice(
    provider: str, django_assert_max_num_queries: Any
) -> None:
    """A job here and there takes the ordinary release."""
    leader = Leader()
    backlog(provider, 1)
    assert len(leader.send()) == 1
    assert not leader.places.strained()


@pytest.mark.parametrize("verdict", [Verdict.THROTTLED, Verdict.FAILED])
def test_what_is_closed_gets_nothing(provider: str, verdict: Verdict) -> None:
    """After a 429 and behind an open breaker nobody is sent, with a place or without."""
    leader, slow = Leader(), backlog(provider, 3)
    leader.send(1)
    store.finish(rules_of(provider), "x", verdict, 30.0)
    wait_for(lambda: leader.looks() or leader.places.closed(provider), what="the store's answer")
    Job.objects.filter(pk=slow[1]).update(reason="rate")
    assert leader.send() == []
    assert min(waits(slow[1:])) > 9
    assert reasons(slow[1:]) == {"breaker" if verdict is Verdict.FAILED else "rate"}


@pytest.mark.bar
def test_a_raised_rate_brings_places_forward(provider: str) -> None:
    """And a new leader starts with all of them; those for which it is too soon wait anew."""
    leader, slow = Leader(), backlog(provider, 104)
    leader.send(4)
    leader.send()
    assert max(waits(slow[4:])) > 50
    assert leader.looks() == {"high"}, "a relay that begins takes over what it finds"
    leader.send()
    assert max(waits(slow[4:])) > 50, "at the same rate they wait as before"
    assert leader.looks() == set()
    set_limits("default", dependency=provider, rate="10/s", reason="r", author="me", seconds=60)
    wait_for(leader.looks, what="the faster rate to be seen")
    while leader.send():
        pass
    assert max(waits(slow[4:])) <= 11


def test_places_that_come_too_early_are_given_anew(provider: str) -> None:
    """Workers began late, so the line is longer than it looked: refusals tell, and all move back."""
    from tests.relay.limits.stores import Desk

    leader, desk = Leader(), Desk(store.limits(), rules_of(provider))
    slow = backlog(provider, 10)
    leader.send(4)
    wait_for(lambda: leader.looks() or leader.places._lines[provider].refused == 0, what="a look")
    assert leader.send() == []
    for n in range(50):
        desk.take(f"j{n}")
    wait_for(leader.looks, what="the refusals to be seen")
    assert leader.send() == []
    assert min(waits(slow[4:])) > 20


def test_what_the_store_has_given_out_counts(provider: str) -> None:
    """Others have filled the line for half a minute: what comes now is behind them."""
    from tests.relay.limits.stores import Desk

    leader, desk = Leader(), Desk(store.limits(), rules_of(provider))
    slow = backlog(provider, 2)
    leader.send(1)
    for n in range(50):
        desk.take(f"j{n}")
    wait_for(lambda: leader.looks() or leader.places.strained(), what="the store's answer")
    assert leader.send() == []
    assert waits(slow[1:])[0] > 20


def test_far_ahead_no_place_is_given(provider: str) -> None:
    """Who is further back than ten minutes is looked at again, as one that is new."""
    leader = Leader()
    backlog(provider, 1)
    leader.send()
    for _ in range(1100):
        leader.places.go(provider)
    (last,) = backlog(provider, 1)
    assert leader.send() == []
    assert reasons([last]) == {"new"}
    assert 290 < waits([last])[0] <= 600


def test_the_requests_of_a_coalesce_key_have_one_place(provider: str) -> None:
    """They make one call, so they take one turn."""
    leader = Leader()
    leader.places.go(provider)
    for _ in range(4):
        leader.places.go(provider)
    same = backlog(provider, 3, coalesce_key="page:1", key=None)
    other = backlog(provider, 1)
    assert leader.send() == []
    times = waits([*same, *other])
    assert max(times[:3]) - min(times[:3]) < 0.3
    assert times[3] - times[0] < 1.0


def test_a_question_about_an_outside_call_is_no_call(provider: str) -> None:
    """It is sent at once: the provider's answer is asked for under limits of its own."""
    leader = Leader()
    for _ in range(9):
        leader.places.go(provider)
    asking = backlog(provider, 1, reason="uncertain")
    assert leader.send() == asking


def test_a_hold_comes_before_a_place(provider: str) -> None:
    """Held jobs are put aside until the switch's end, and take no turn of others."""
    leader = Leader()
    for _ in range(9):
        leader.places.go(provider)
    held = backlog(provider, 2, task="shop.held")
    turn_on("default", action="hold", task="shop.held", reason="r", author="me", seconds=600)
    assert leader.send() == []
    assert reasons(held) == {"paused"}


def test_tenants_pass_each_others_throttled_jobs(provider: str, settings: Any) -> None:
    """By shares too, what may not start is put aside, and the share goes to what may."""
    settings.CELERY_GUARD = {
        **settings.CELERY_GUARD,
        "lanes": {**settings.CELERY_GUARD["lanes"], "high": {"window": 8}},
    }
    leader = Leader()
    for _ in range(9):
        leader.places.go(provider)
    backlog(provider, 30, tenant="a")
    mine = [make_job(tenant=tenant, due_in=-1).pk for tenant in "ab"]
    assert sorted(leader.send()) == mine


def test_a_dependency_that_the_settings_forgot_is_sent(provider: str) -> None:
    """The worker says what is wrong with it; the relay holds nothing back."""
    leader = Leader()
    for _ in range(9):
        leader.places.go(provider)
    assert leader.send() == []
    gone = backlog("gone", 2)
    assert leader.send() == gone


def test_a_frozen_redis_holds_no_relay_up(
    own_redis: servers.Private, provider: str, settings: Any
) -> None:
    """The answer is missing, and everything is sent as it was known before."""
    settings.CELERY_GUARD = {
        **settings.CELERY_GUARD,
        "limits": "auto",
        "redis": own_redis.url,
        "relay": {**settings.CELERY_GUARD["relay"], "timeout": 60},
    }
    leader, slow = Leader(), backlog(provider, 5)
    own_redis.freeze()
    try:
        assert leader.send(4) == slow[:4]
        assert leader.looks() == set()
        assert leader.looks() == set()
        assert leader.send() == []
        assert leader.places._asking._pending, "it is still asked for"
    finally:
        own_redis.thaw()


def test_taking_places_back_reads_no_jobs_for_far_later() -> None:
    """However many are scheduled for next week, the plan is a range of the lane's index."""
    if connection.vendor != "postgresql":
        pytest.skip("the plan is PostgreSQL's")
    with connection.cursor() as cursor:
        cursor.execute(_SCHEDULED)
        cursor.execute("ANALYZE celery_guard_job")
    plan = placed("default", "high", "provider").order_by("first_due_at").explain()
    assert "celery_guard_job_line" in plan
    assert "Seq Scan" not in plan


_SCHEDULED = """
INSERT INTO celery_guard_job (public_id, task, lane, tenant, fingerprint, state, reason, plain,
    awaited, created_at, first_due_at, due_at, fence, starts, sends, failures, lost)
SELECT gen_random_uuid(), 't', 'high', '', '', 'waiting', 'eta', false, false,
       now(), now(), now() + interval '7 days', 0, 0, 0, 0, 0
FROM generate_series(1, 20000)
"""
