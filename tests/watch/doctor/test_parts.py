"""Each thing that can be wrong with a running site is named, with the line that mends it."""

from __future__ import annotations

import contextlib
import datetime as dt
import uuid
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
import redis
import time_machine
from django.db import connection, connections, transaction
from django.db.migrations.recorder import MigrationRecorder
from django.utils import timezone

from celery_guard import __version__
from celery_guard.conf import guard_settings
from celery_guard.enqueue.steering.turning import turn_on
from celery_guard.jobs.states import State
from celery_guard.models import Duty, Effect, Job, LaneLead, WorkerPresence
from celery_guard.relay.duties import registered
from celery_guard.relay.presence import WINDOW_LEAST
from celery_guard.settle.states import EffectState, Recovery
from celery_guard.watch.doctor import database
from celery_guard.watch.doctor.broker import look_at_broker, look_at_redis
from celery_guard.watch.doctor.canary import _judge
from celery_guard.watch.doctor.finding import Finding, Level
from celery_guard.watch.doctor.lanes import (
    look_at_duties,
    look_at_lanes,
    look_at_releases,
    look_at_reserves,
)
from celery_guard.watch.doctor.leases import look_at_leases
from celery_guard.watch.doctor.leftovers import look_at_leftovers
from servers.processes import free_port
from tests.factories import make_job
from tests.kit.brokers import Own, on_broker
from tests.kit.site import app
from tests.relay.ledger import measured, queue_of
from tests.run.sessions import elsewhere
from tests.watch.rows import aged, ended, running, sent

pytestmark = [pytest.mark.django_db, pytest.mark.mariadb]


def bad(found: Iterator[Finding]) -> list[Finding]:
    """What is not well; every such finding has its hint."""
    worse = [finding for finding in found if finding.level is not Level.OK]
    assert all(finding.hint for finding in worse)
    return worse


def only(found: Iterator[Finding]) -> Finding:
    """The one thing that is not well."""
    (finding,) = bad(found)
    return finding


def lead_all() -> None:
    """A relay leads every lane."""
    soon = timezone.now() + timedelta(seconds=30)
    for lane in ("high", "medium", "low"):
        LaneLead.objects.create(lane=lane, owner=uuid.uuid4(), lead_until=soon)


def serve(*lanes: str, slots: int = 2) -> None:
    """A worker that lives serves these lanes."""
    queues = [queue_of(lane) for lane in lanes]
    WorkerPresence.objects.create(
        owner=uuid.uuid4(), name="w@host", queues=queues, slots=slots, seen_at=timezone.now()
    )


def hold(lane: str) -> None:
    """An operator has paused a lane; ``""``: all of them."""
    turn_on("default", action="hold", lane=lane, reason="r", author="ana", seconds=600)


def test_a_lane_needs_a_relay_and_a_worker() -> None:
    """A lane without the one or the other is a fault of its own; the hint starts what is missing."""
    lead_all()
    LaneLead.objects.filter(lane="medium").delete()
    serve("high", "medium")
    no_relay, no_worker = bad(look_at_lanes("default", app))
    assert (no_relay.what, no_relay.level) == ("lane medium", Level.FAULT)
    assert "guard_relay" in no_relay.hint
    assert (no_worker.what, no_worker.level) == ("lane low", Level.FAULT)
    assert no_worker.hint == f"celery -A tests.project worker -n low@%h -Q {queue_of('low')}"


def test_where_no_worker_lives_the_first_hint_is_a_worker() -> None:
    """Each hosts a relay, so one line mends both, and there is one fault a lane."""
    found = bad(look_at_lanes("default", app))
    assert [finding.what for finding in found] == ["lane high", "lane medium", "lane low"]
    for finding in found:
        assert "no live worker" in finding.says
        assert "no relay" in finding.says
        assert finding.hint.startswith("celery -A tests.project worker, or")


def test_a_lead_that_is_over_does_not_count() -> None:
    """The row of a relay that died says nothing."""
    lead_all()
    serve("high", "medium", "low")
    LaneLead.objects.filter(lane="high").update(lead_until=timezone.now() - timedelta(seconds=5))
    assert only(look_at_lanes("default", app)).what == "lane high"


def test_a_silent_worker_does_not_count() -> None:
    """Nor does the row of a worker that has not reported for long."""
    lead_all()
    serve("high", "medium", "low")
    WorkerPresence.objects.update(seen_at=timezone.now() - timedelta(hours=1))
    assert len(bad(look_at_lanes("default", app))) == 3


def test_what_is_kept_for_small_jobs_must_be_of_use(settings: Any) -> None:
    """Without a task that is known to be small, or with one slot, nothing is kept for anybody."""
    settings.CELERY_GUARD = {**settings.CELERY_GUARD, "lanes": {"high": {"small": {"under": 0.5}}}}
    serve("high", slots=1)
    assert "no task is known" in only(look_at_reserves("default")).says
    measured("shop.mail", seconds=1, runs=4)
    assert "all of its slots (1)" in only(look_at_reserves("default")).says
    serve("high", slots=3)
    assert [f.says for f in look_at_reserves("default")] == [
        "1 tasks are small; long jobs take 3 of 4 slots"
    ]


def test_workers_of_another_release_are_told() -> None:
    """A roll-out that stopped half-way is nothing that a job would show."""
    serve("high")
    WorkerPresence.objects.update(version=__version__)
    assert bad(look_at_releases("default")) == []
    serve("high")
    serve("low")
    WorkerPresence.objects.filter(version="", queues=[queue_of("low")]).update(version="0.0.9")
    finding = only(look_at_releases("default"))
    assert finding.level == Level.WARNING
    assert finding.says == f"live workers do not run {__version__}: 0.0.9 (1), an older release (1)"


def test_upkeep_that_nobody_does_is_a_fault() -> None:
    """Never done and done too long ago are the same."""
    now = timezone.now()
    for duty in registered():
        Duty.objects.create(name=duty.name, done_at=now)
    assert not bad(look_at_duties("default"))
    Duty.objects.filter(name="sweep").update(done_at=now - timedelta(minutes=5))
    Duty.objects.filter(name="rescue").delete()
    finding = only(look_at_duties("default"))
    assert finding.level is Level.FAULT
    assert "rescue, sweep" in finding.says


def test_upkeep_that_takes_longer_than_its_period_is_told() -> None:
    """Measurements then come late, however short a period is asked for; one under way says nothing."""
    now = timezone.now()
    for duty in registered():
        Duty.objects.create(name=duty.name, begun_at=now - timedelta(seconds=0.1), done_at=now)
    assert bad(look_at_duties("default")) == []
    late = {"begun_at": now - timedelta(seconds=9), "done_at": now}
    Duty.objects.filter(name="snapshot").update(**late)
    assert only(look_at_duties("default")).what == "duty snapshot"
    Duty.objects.filter(name="snapshot").update(begun_at=now + timedelta(seconds=1))
    assert bad(look_at_duties("default")) == []


def test_what_waits_for_a_person_is_told() -> None:
    """An effect that nobody can look up waits until somebody decides."""
    job = make_job("high")
    Effect.objects.create(
        job_id=job.pk,
        name="charge",
        provider_key="k",
        provider="bank",
        created_at=timezone.now(),
        recovery=Recovery.MANUAL,
        state=EffectState.MANUAL,
    )
    finding = only(look_at_leftovers("default"))
    assert (finding.what, finding.level) == ("effects", Level.WARNING)


def test_new_dead_letters_are_told_by_reason() -> None:
    """Those of the last hour that still wait for a decision; a task that no worker knows is named."""
    for reason in ("unknown_task", "unknown_task", "permanent"):
        ended(state=State.FAILED, reason=reason)
    ended(state=State.DEAD, reason="budget", finished_at=timezone.now() - timedelta(hours=2))
    ended(state=State.FAILED, reason="purged", error=None)
    finding = only(look_at_leftovers("default"))
    assert (finding.what, finding.level) == ("dead letters", Level.WARNING)
    assert finding.says == "of the last hour, by reason: unknown_task 2, permanent 1"
    assert "restart the workers" in finding.hint


def test_a_job_that_is_due_and_stays_is_told() -> None:
    """It could have gone for over a minute and was not sent: the outbox stands still."""
    aged("high", seconds=300)
    finding = only(look_at_leftovers("default"))
    assert (finding.what, finding.level) == ("outbox of high", Level.WARNING)
    assert "5 min" in finding.says


@pytest.mark.parametrize(
    "why_not",
    [
        pytest.param(lambda: [running(ago=300) for _ in range(WINDOW_LEAST)], id="full window"),
        pytest.param(lambda: sent("high", ago=5), id="the relay sends"),
        pytest.param(lambda: hold("high"), id="the lane is held"),
        pytest.param(lambda: hold(""), id="everything is held"),
    ],
)
def test_a_line_that_is_meant_to_wait_is_no_outbox_that_stands_still(
    why_not: Callable[[], object],
) -> None:
    """A busy lane has a backlog; that is for the alerts on age, and no fault of the relay's."""
    serve("high", slots=2)
    aged("high", seconds=300)
    why_not()
    assert not list(look_at_leftovers("default"))


def test_tables_of_another_release_are_named() -> None:
    """The hint is the command that makes them."""
    MigrationRecorder.Migration.objects.filter(app="celery_guard", name="0002_databases").delete()
    finding = database.is_migrated("default")
    assert finding is not None
    assert "0002_databases" in finding.says
    assert "migrate celery_guard" in finding.hint


def test_a_function_that_is_missing_is_named() -> None:
    """The migrations are applied by name, and yet every enqueue would fail."""
    if connection.vendor != "postgresql":
        pytest.skip("only PostgreSQL has them")
    assert database.is_migrated("default") is None
    with connection.cursor() as cursor:
        cursor.execute("ALTER FUNCTION celery_guard_insert_1 RENAME TO elsewhere")
    finding = database.is_migrated("default")
    assert finding is not None
    assert finding.says == "functions are missing: celery_guard_insert_1"
    assert finding.hint


def test_clocks_that_differ_are_told() -> None:
    """It harms nothing, but what is shown would be wrong."""
    with time_machine.travel(dt.datetime.now(dt.UTC) + timedelta(seconds=30), tick=True):
        finding = only(database.look_at_database("default"))
    assert finding.level is Level.WARNING
    assert "+30" in finding.says or "+29" in finding.says


@pytest.fixture
def _postgres() -> None:
    if connection.vendor != "postgresql":
        pytest.skip("only PostgreSQL tells it")


@pytest.mark.usefixtures("_postgres")
def test_more_workers_than_connections_are_a_fault() -> None:
    """Slots and relays are added up against what the server gives."""
    serve("high", slots=4000)
    finding = only(database.look_at_database("default"))
    assert finding.level is Level.FAULT
    assert "8003" in finding.says


@pytest.mark.usefixtures("_postgres")
def test_a_session_idle_in_its_transaction_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """It holds back vacuum, which slows every claim."""
    monkeypatch.setattr(database, "IDLE_MOST", 0)
    other = connections["default"].copy()
    try:
        with other.cursor() as cursor:
            cursor.execute("BEGIN")
            cursor.execute("SELECT 1")
        finding = only(database.look_at_database("default"))
    finally:
        other.close()
    assert "idle in a transaction" in finding.says


def test_a_broker_that_is_away_is_a_fault_and_shows_no_password() -> None:
    """What cannot be reached is named by its address alone."""
    with on_broker(f"redis://:hush@127.0.0.1:{free_port()}/0"):
        finding = only(look_at_broker(app))
    assert finding.level is Level.FAULT
    assert "hush" not in finding.says + finding.hint


@contextlib.contextmanager
def on_redis(settings: Any, url: str) -> Iterator[redis.Redis[bytes]]:
    """The site's own Redis is the one at ``url`` within the block."""
    settings.CELERY_GUARD = {**settings.CELERY_GUARD, "redis": url}
    with contextlib.closing(redis.Redis.from_url(url)) as client:
        yield client


def test_a_redis_that_may_forget_is_a_fault(own_server: Own, settings: Any) -> None:
    """Any policy but noeviction lets a full server throw messages away."""
    server = own_server("redis")
    with on_redis(settings, server.url) as client:
        assert not bad(look_at_redis(app))
        client.config_set("maxmemory-policy", "allkeys-lru")
        finding = only(look_at_redis(app))
    assert finding.level is Level.FAULT
    assert "allkeys-lru" in finding.says


def test_a_redis_that_is_away_is_a_fault(settings: Any) -> None:
    """Then no commit wakes the relay."""
    with on_redis(settings, f"redis://127.0.0.1:{free_port()}/0"):
        assert only(look_at_redis(app)).level is Level.FAULT


def started(**changes: object) -> object:
    """A canary that ran just now."""
    now = timezone.now()
    return ended("high", **{"started_at": now, "result": str(now.timestamp()), **changes})  # type: ignore[arg-type]


LATE = timedelta(seconds=100)


@pytest.mark.parametrize(
    ("job", "says", "level"),
    [
        (lambda: None, "did not start", Level.FAULT),
        (lambda: make_job("high"), "did not start", Level.FAULT),
        (lambda: started(state=State.FAILED), "is failed", Level.FAULT),
        (lambda: started(created_at=timezone.now() - LATE), "objective", Level.WARNING),
        (lambda: started(result=str(timezone.now().timestamp() - 60)), "clock", Level.WARNING),
        (started, "started", Level.OK),
    ],
)
def test_a_canary_tells_how_it_went(job: Callable[[], object], says: str, level: Level) -> None:
    """Not started, failed, late, from a worker with a wrong clock: each is told apart."""
    finding = _judge(guard_settings().lanes["high"], job(), patience=5)  # type: ignore[arg-type]
    assert (finding.level, finding.what) == (level, "canary high")
    assert says in finding.says


@pytest.mark.django_db(transaction=True)
def test_a_job_that_no_rescue_can_have_is_named() -> None:
    """Its lease is over, but a session has its row locked: which one, where the database tells."""
    ended_at = timezone.now() - timedelta(seconds=100)
    job = running(lease_until=ended_at)
    running(lease_until=timezone.now() - timedelta(seconds=5))
    with transaction.atomic():
        Job.objects.select_for_update().get(pk=job.pk)
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT pg_backend_pid()" if connection.vendor == "postgresql" else "SELECT 1"
            )
            (pid,) = cursor.fetchone()
        found: list[Finding] = []
        elsewhere(lambda: found.append(only(look_at_leases("default"))))()
    assert f"1, first {job.pk}" in found[0].says
    if connection.vendor == "postgresql":
        assert f"SELECT pg_terminate_backend({pid});" in found[0].hint


def test_a_lease_that_was_just_over_is_no_finding() -> None:
    """The next sweep takes it."""
    running(lease_until=timezone.now() - timedelta(seconds=5))
    assert not bad(look_at_leases("default"))
