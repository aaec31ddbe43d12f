"""Tenants share a lane: who is released, beside a flood and under bounds."""

from __future__ import annotations

import dataclasses
import uuid
from collections import Counter
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from celery_guard import UNKEYED, events, guarded_task
from celery_guard.enqueue.steering.turning import turn_on
from celery_guard.events import Event
from celery_guard.jobs import heads, release_held, sharing
from celery_guard.jobs.clock import DatabaseNow
from celery_guard.models import Job, LaneLead
from celery_guard.relay import fair
from celery_guard.relay.fair import Turns
from celery_guard.relay.placing import Places
from celery_guard.relay.presence import Worker
from tests.factories import make_job
from tests.jobs.requests import ask, held_elsewhere
from tests.relay.ledger import lead, measured, queue_of

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.mariadb]

SLOTS = 4


def workers(slots: int = SLOTS) -> list[Worker]:
    """One live worker of the lane ``high``."""
    return [Worker(name="w", queues=(queue_of("high"),), slots=slots)]


def wait(tenant: str, count: int = 1, **changes: Any) -> None:
    """Jobs of ``tenant`` that are due."""
    for _ in range(count):
        make_job("high", tenant=tenant, **changes)


def send(turns: Turns | None = None, *, slots: int = SLOTS, batch: int = 100) -> Counter[str]:
    """Whose jobs one release sends, and how many."""
    LaneLead.objects.filter(lane="high").delete()
    sent = (turns or Turns("default", Places("default"))).release(
        lead("high"), batch, workers(slots)
    )
    ids = [sending.id for sending in sent]
    return Counter(Job.objects.filter(pk__in=ids).values_list("tenant", flat=True))


@pytest.fixture
def postgres() -> None:
    """What one statement does on PostgreSQL, others do elsewhere."""
    if connection.vendor != "postgresql":
        pytest.skip("PostgreSQL's statement")


@pytest.mark.bar
def test_a_newcomer_is_next_beside_a_flood():
    """A's backlog fills the window; B's first job still goes out at the next free place."""
    wait("a", 60)
    assert send() == {"a": 16}
    wait("b")
    assert send() == {}
    end(1, of="a")
    assert send() == {}, "two tenants: the window shrinks to little more than the slots"
    end(11, of="a")
    assert send() == {"b": 1}
    assert send() == {"a": 11}, "and A is alone again"


def end(count: int, *, of: str) -> None:
    """That many sent jobs of a tenant have ended."""
    sent = Job.objects.filter(tenant=of, sent_at__isnull=False)
    for job in sent.order_by("pk")[:count]:
        Job.objects.filter(pk=job.pk).update(
            state="succeeded", sent_at=None, due_at=None, finished_at=job.created_at
        )


def test_whoever_is_alone_gets_the_whole_window():
    """No place stays empty for tenants that are not there."""
    wait("a", 40)
    assert send() == {"a": 16}


def test_tenants_share_evenly_and_oldest_first():
    """Each gets as much as the others; of its own jobs the oldest."""
    wait("a", 20)
    wait("b", 20)
    wait("c", 20)
    assert send() == {"a": 2, "b": 2, "c": 2}
    oldest = Job.objects.filter(tenant="b").order_by("due_at", "pk")[:2]
    assert all(job.sent_at is not None for job in oldest)


def test_jobs_without_a_tenant_share_like_one():
    """They are neither starved by tenants nor do they starve them."""
    wait("", 20)
    wait("a", 20)
    assert send() == {"": 3, "a": 3}


def test_a_lane_without_tenants_is_released_by_age():
    """One statement finds that nobody has a tenant."""
    wait("", 20)
    assert send() == {"": 16}


def test_weights_and_bounds_come_from_the_settings(settings: Any):
    """A tenant that pays for more gets more; one at its bound is passed over."""
    settings.CELERY_GUARD = {
        **settings.CELERY_GUARD,
        "tenants": {"limits": {"gold": {"weight": 2}, "tiny": {"in_flight": 1}}.get},
    }
    for tenant in ("gold", "other", "tiny"):
        wait(tenant, 40)
    assert send(slots=8) == {"gold": 7, "other": 4, "tiny": 1}
    assert send(slots=8) == {}
    end(3, of="gold")
    assert send(slots=8)["tiny"] == 0


@guarded_task(key=UNKEYED, cost=5)
def declared() -> None:
    """Says what it costs."""


def _after(looks: int, **tasks: str) -> Counter[str]:
    # Everything that was sent has ended at the next look.
    turns, sent = Turns("default", Places("default")), Counter[str]()
    for tenant, task in tasks.items():
        wait(tenant, 60, task=task)
    for _ in range(looks):
        sent += (some := send(turns))
        for tenant, count in some.items():
            end(count, of=tenant)
    return sent


@pytest.mark.parametrize("form", ["measured", "declared"])
def test_a_job_is_charged_what_it_costs(form: str):
    """Five seconds against one, measured in good runs or said by the task: one for five."""
    slow = "shop.slow" if form == "measured" else declared.name
    measured("shop.noop", seconds=100, runs=100)
    if form == "measured":
        measured(slow, seconds=500, runs=100)
    sent = _after(10, a=slow, b="shop.noop")
    assert sent["a"] + sent["b"] == 60
    # At first nobody knows what a tenant brings: three of each.
    assert sent["b"] - 6 <= 5 * sent["a"] <= sent["b"] + 15


def test_jobs_of_unknown_cost_are_counted():
    """Nobody was measured and nobody says: each job is one."""
    assert _after(4, a="shop.one", b="shop.other") == {"a": 12, "b": 12}


def test_a_new_term_begins_anew():
    """What others sent while they led is not known: what is held counts, and nothing older."""
    turns = Turns("default", Places("default"))
    wait("a", 20)
    assert send(turns) == {"a": 16}
    end(16, of="a")
    wait("a", 20)
    wait("b", 20)
    LaneLead.objects.filter(lane="high").delete()
    held = dataclasses.replace(lead("high"), term=7)
    LaneLead.objects.update(term=7)
    sent = turns.release(held, 100, workers())
    assert Counter(sending.tenant for sending in sent) == {"a": 3, "b": 3}


def test_a_callable_that_fails_holds_up_nobody(settings: Any):
    """The site's own code is asked; what it raises is told, and the defaults hold."""

    def broken(tenant: str) -> None:
        raise RuntimeError("no plan table")

    settings.CELERY_GUARD = {**settings.CELERY_GUARD, "tenants": {"limits": broken}}
    heard: list[Event] = []
    events.receive(heard.append)
    try:
        wait("a", 20)
        assert send() == {"a": 16}
    finally:
        events._receivers.remove(heard.append)
    assert "enqueue.tenant_unknown" in [event.name for event in heard]


def test_more_tenants_than_one_look_considers_get_their_turn(monkeypatch: pytest.MonkeyPatch):
    """The next look goes on behind the last one of this, and then starts over."""
    monkeypatch.setattr(fair, "MOST", 3)
    for name in "abcdefg":
        wait(name, 5)
    turns, seen = Turns("default", Places("default")), Counter[str]()
    for _ in range(4):
        seen += send(turns, slots=64, batch=3)
    assert set(seen) == set("abcdefg")


def test_a_tenant_that_waits_elsewhere_takes_no_turn():
    """Other lanes, jobs that are not due, jobs that are sent already."""
    make_job("low", tenant="a")
    wait("b", due_in=600)
    wait("c")
    assert sharing.waiting_tenants("default", "high", after="", most=10) == ["c"]
    assert send() == {"c": 1}
    assert sharing.waiting_tenants("default", "high", after="", most=10) == []


def test_a_release_by_turns_needs_the_lead():
    """Whoever lost it sends nothing."""
    wait("a", 5)
    held = lead("high")
    LaneLead.objects.update(term=held.term + 1)
    assert Turns("default", Places("default")).release(held, 10, workers()) == []


@pytest.mark.parametrize("others", [2, 200])
def test_the_statements_do_not_grow_with_the_backlog(others: int):
    """Four for a look on PostgreSQL, however many tenants wait."""
    if connection.vendor != "postgresql":
        pytest.skip("elsewhere each tenant is asked for by itself")
    for n in range(others):
        wait(f"t{n:03}")
    with CaptureQueriesContext(connection) as captured:
        held, turns = lead("high"), Turns("default", Places("default"))
        before = len(captured)
        turns.release(held, 1, workers(64))
        said = "the first look finds out that there are tenants, and what jobs cost"
        assert len(captured) - before <= 7, said
        before = len(captured)
        turns.release(held, 50, workers(64))
        assert len(captured) - before <= 5


def test_a_lane_without_tenants_takes_one_statement(postgres: None):
    """A lone job, as on an idle system, is sent by the release and nothing besides."""
    wait("", 2)
    held = lead("high")
    with CaptureQueriesContext(connection) as captured:
        assert len(Turns("default", Places("default")).release(held, 50, workers())) == 2
    assert len(captured) == 1


def test_a_hold_counts_before_this_relay_has_read_of_it(
    postgres: None, monkeypatch: pytest.MonkeyPatch
):
    """The statement looks for itself; what the relay has read may be a second old."""
    monkeypatch.setattr(fair, "is_steered", lambda *_: False)
    wait("")
    turn_on("default", action="hold", reason="r", author="me", seconds=600, lane="low")
    assert send() == {"": 1}
    wait("")
    turn_on("default", action="hold", reason="r", author="me", seconds=600, lane="high")
    assert send() == {}


def test_a_fold_passes_no_bound(settings: Any):
    """A's turn folds its request into B's newer one, which waits until B may send again."""
    settings.CELERY_GUARD = {**settings.CELERY_GUARD, "tenants": {"in_flight": 1}}
    wait("b")
    assert send() == {"b": 1}
    for key in ("x", "y", "z"):
        ask(key, tenant="a")
        ask(key, tenant="b")
    wait("a", due_in=0)
    assert send() == {"a": 1}
    assert send() == {}
    end(1, of="b")
    assert send() == {"b": 1}
    end(1, of="b")
    assert send() == {"b": 1}
    assert not Job.objects.filter(state="waiting", tenant="a", coalesce_key__isnull=False).exists()


@pytest.mark.bar
@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("steered", [True, False])
def test_a_backlog_at_its_bound_hides_no_job_without_a_tenant(
    settings: Any, monkeypatch: pytest.MonkeyPatch, *, at_once: bool, steered: bool
):
    """A's thousands fill the head, and A may send no more; a job without a tenant still goes.

    Also where all were due at one moment, and no order tells them apart.
    """
    monkeypatch.setattr(sharing, "HEAD_ONLY", sharing.Stretch(most=5))
    monkeypatch.setattr(fair, "HEAD_ONLY", sharing.Stretch(most=5))
    monkeypatch.setattr(fair, "is_steered", lambda *_: steered)
    settings.CELERY_GUARD = {**settings.CELERY_GUARD, "tenants": {"in_flight": 1}}
    wait("a", 12, due_in=-60)
    turns = Turns("default", Places("default"))
    assert send(turns) == {"a": 1}
    wait("", 2, due_in=-50)
    wait("a", 12, due_in=-40)
    if at_once:
        Job.objects.filter(sent_at=None).update(due_at=DatabaseNow())
    assert send(Turns("default", Places("default"))) == {"": 2}
    assert send(turns) == {}


def test_a_far_look_is_not_taken_at_every_release(monkeypatch: pytest.MonkeyPatch):
    """A lane full of tenants' jobs, and none else, is read that far every two seconds only."""
    monkeypatch.setattr(fair, "HEAD_ONLY", sharing.Stretch(most=5))
    looks: list[str] = []
    monkeypatch.setattr(sharing, "find_nobodys", lambda using, lane: looks.append(lane))
    wait("a", 30)
    turns = Turns("default", Places("default"))
    for _ in range(5):
        send(turns)
        end(1, of="a")
    assert looks == ["high"]


def test_a_place_is_not_kept_for_jobs_that_are_gone(monkeypatch: pytest.MonkeyPatch):
    """Found far away once and sent since: the others get all places again."""
    monkeypatch.setattr(fair, "HEAD_ONLY", sharing.Stretch(most=5))
    wait("a", 30, due_in=-60)
    wait("", due_in=-30)
    turns = Turns("default", Places("default"))
    assert send(turns, slots=64, batch=2) == {"": 1, "a": 1}
    assert send(turns, slots=64, batch=2) == {"a": 2}


@pytest.mark.bar
@pytest.mark.parametrize("tenant", ["", "a"])
@pytest.mark.parametrize("steered", [True, False])
def test_jobs_that_wait_for_an_outcome_fill_nothing(
    settings: Any, monkeypatch: pytest.MonkeyPatch, tenant: str, *, steered: bool
):
    """Neither the window nor a tenant's bound: a person may be long in coming."""
    monkeypatch.setattr(fair, "is_steered", lambda *_: steered)
    settings.CELERY_GUARD = {**settings.CELERY_GUARD, "tenants": {"in_flight": 1}}
    wait(tenant, 16)
    Job.objects.update(
        state="reconciling", reason="uncertain", sent_at=DatabaseNow(), owner=uuid.uuid4()
    )
    wait(tenant)
    assert send() == {tenant: 1}


@pytest.mark.bar
@pytest.mark.parametrize("tenant", ["", "a"])
def test_rows_that_others_have_locked_use_up_no_share(tenant: str):
    """A transaction that stays open on the oldest jobs delays those alone."""
    if connection.vendor == "sqlite":
        pytest.skip("one writer at a time: nothing is passed over")
    wait(tenant, 5, due_in=-60)
    wait("b", 20)
    oldest = list(Job.objects.filter(tenant=tenant).order_by("due_at").values_list("pk", flat=True))

    def hold() -> None:
        list(Job.objects.select_for_update().filter(pk__in=oldest[:3]))

    with held_elsewhere(hold, commit=False):
        assert send() == {tenant: 2, "b": 3}


@pytest.mark.bar
@pytest.mark.parametrize("tenant", ["", "a"])
@pytest.mark.parametrize("steered", [True, False])
def test_many_locked_rows_hide_nothing_behind_them(
    monkeypatch: pytest.MonkeyPatch, tenant: str, *, steered: bool
):
    """Far more than a look passes over by itself: those behind them go, at once or within three looks."""
    if connection.vendor == "sqlite":
        pytest.skip("one writer at a time: nothing is passed over")
    for module in (sharing, heads):
        monkeypatch.setattr(module, "SPARE", 3)
    monkeypatch.setattr(release_held, "LOOK_EACH", 3)
    monkeypatch.setattr(fair, "is_steered", lambda *_: steered)
    wait(tenant, 36, due_in=-60)
    wait("b", 20)
    oldest = list(Job.objects.filter(tenant=tenant).order_by("due_at").values_list("pk", flat=True))

    def hold() -> None:
        list(Job.objects.select_for_update().filter(pk__in=oldest[:30]))

    turns, sent = Turns("default", Places("default")), Counter[str]()
    with held_elsewhere(hold, commit=False):
        for _ in range(3):
            sent += send(turns)
            end(sent["b"], of="b")
        assert sent[tenant] >= 2
    assert send(turns)[tenant] > 0, "and once they are free, they are next"


def test_tenants_that_wait_elsewhere_cost_no_look_up():
    """The statements of a look are as many, however many tenants have work for tomorrow."""
    wait("z")
    for n in range(30):
        make_job("low", tenant=f"t{n:02}", due_in=86400)
    with CaptureQueriesContext(connection) as captured:
        assert sharing.waiting_tenants("default", "high", after="", most=10) == ["z"]
    assert len(captured) == 1
