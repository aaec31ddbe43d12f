"""A worker's own pool, led by the advice for its lanes."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import psutil
import pytest
from celery.worker.autoscale import WorkerComponent
from django.utils import timezone
from pytest_django import Settings

from celery_guard.conf import guard_settings
from celery_guard.events import Event
from celery_guard.models import Duty, Job, LaneSample, LaneSnapshot, WorkerPresence
from celery_guard.relay.desk import Desk
from celery_guard.relay.presence import Worker, report
from celery_guard.watch import autoscaler
from celery_guard.watch.autoscaler import Autoscaler
from celery_guard.watch.lanes import LaneView, read_lanes, stale_after
from celery_guard.watch.pool_share import share, share_of
from celery_guard.watch.snapshot import take_snapshot
from tests.kit.processes import Process, Processes
from tests.kit.wait import wait_for
from tests.project.shop import tasks
from tests.project.shop.witness import open_gate, traces
from tests.watch import scaled_settings

pytestmark = pytest.mark.django_db(transaction=True)

HOUR = timedelta(hours=1)


def queue(lane: str = "high") -> str:
    return guard_settings().lane(lane).queue


def worker(name: str, *lanes: str, slots: int = 1) -> Worker:
    return Worker(name=name, queues=tuple(map(queue, lanes)), slots=slots)


def advised(**lanes: int) -> list[LaneView]:
    """The lanes as read, with so many workers advised."""
    take_snapshot("default")
    for lane, workers in lanes.items():
        LaneSnapshot.objects.filter(lane=lane).update(desired_workers=workers)
    return [view for view in read_lanes("default") if view.name in lanes]


@pytest.fixture
def one_slot_each(settings: Settings) -> None:
    """A worker of the advice is one slot."""
    settings.CELERY_GUARD = {**settings.CELERY_GUARD, "scale": {"concurrency": 1}}


@pytest.mark.usefixtures("one_slot_each")
def test_the_slots_of_a_lane_are_dealt_out_whole() -> None:
    """Seven slots among three workers are 3, 2, 2, whoever computes it; a worker adds up its lanes."""
    alive = [worker("c", "high"), worker("a", "high"), worker("b", "high", "low")]
    lanes = advised(high=7, low=4)
    assert [share_of(w, lanes[:1], alive) for w in alive] == [2, 3, 2]
    assert share_of(alive[2], lanes, alive) == 6


@pytest.mark.usefixtures("one_slot_each")
def test_a_worker_that_nobody_sees_gets_no_share() -> None:
    """Its share of nobody's slots would be all of them."""
    assert share_of(worker("x", "high"), advised(high=7), [worker("a", "high")]) is None


@pytest.mark.usefixtures("one_slot_each")
def test_a_share_counts_as_long_as_its_snapshot_does() -> None:
    """Then it runs out by itself; a stale lane gives none, one that was never measured neither."""
    me = worker("a", "high", "low")
    assert shared(me) is None
    advised(high=3, low=2)
    found = shared(me)
    assert found is not None
    assert found[0] == 5
    assert 0 < found[1] <= stale_after()
    assert shared(me, using="other") is None, "only the settings' ledger says it"
    low = LaneSnapshot.objects.filter(lane="low")
    low.update(desired_workers=None)
    assert shared(me) is None
    low.update(desired_workers=2, taken_at=timezone.now() - HOUR)
    assert shared(me) is None
    low.delete()
    assert shared(me) is None


def shared(me: Worker, using: str = "default") -> tuple[int, float] | None:
    """The worker's share, just after it was seen alive."""
    report(using, uuid.uuid4(), me)
    return share(using, me)


@pytest.mark.usefixtures("one_slot_each")
def test_a_worker_of_no_lane_gets_no_share() -> None:
    """No slots at all would end its pool."""
    me = Worker(name="a", queues=("elsewhere",), slots=1)
    advised(high=3)
    assert shared(me) is None


def test_the_desk_keeps_two_numbers_and_forgets_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Size and advice don't touch each other; advice that is over is none."""
    here = Desk.fresh()
    there = Desk(here.fd)
    assert (there.size(), here.advised(), there.asks()) == (0, None, False)
    here.say_size(3)
    here.ask()
    there.advise(9, seconds=60.0)
    assert (there.size(), here.advised(), there.asks()) == (3, 9, True)
    there.advise(9, seconds=0.0)
    assert here.advised() is None
    os.close(here.fd)


class Pool:
    """A pool of so many processes, of which some are busy."""

    def __init__(self, size: int, busy: int = 0) -> None:
        self.num_processes = size
        self.busy = busy

    def grow(self, n: int) -> None:
        self.num_processes += n

    def shrink(self, n: int) -> None:
        # As billiard does: what is idle goes, and if that is not enough, it says so.
        idle = self.num_processes - self.busy
        self.num_processes -= min(n, idle)
        if n > idle:
            raise ValueError("busy")

    def maintain_pool(self) -> None:
        pass


@pytest.fixture
def scaler(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Pool]:
    """`scaler(size, advised)`: a pool after one look of its autoscaler, within 2 and 8."""

    def look(size: int, advised: int | None, busy: int = 0) -> Pool:
        pool = Pool(size, busy)
        monkeypatch.setattr(autoscaler, "advised_slots", lambda: advised)
        Autoscaler(pool, 8, 2, worker=SimpleNamespace()).maybe_scale()
        return pool

    return look


@pytest.mark.parametrize(
    ("size", "advised", "becomes"),
    [(2, 5, 5), (5, 3, 3), (4, 4, 4), (2, 50, 8), (8, 0, 2), (6, None, 6)],
)
def test_a_pool_follows_the_advice_within_its_bounds(
    scaler: Callable[..., Pool], size: int, advised: int | None, becomes: int
) -> None:
    """And stays as it is where there is none: a missing number is not 0."""
    assert scaler(size, advised).num_processes == becomes


def test_a_busy_process_is_not_ended(scaler: Callable[..., Pool]) -> None:
    """Three of four run jobs: one goes now, the others when they have ended theirs."""
    assert scaler(4, 2, busy=3).num_processes == 3


def test_it_says_once_that_it_holds(monkeypatch: pytest.MonkeyPatch, told: list[Event]) -> None:
    """Each message is a look; the log gets a line when something changes."""
    found: list[int | None] = [None, None, 3, 3, None]
    monkeypatch.setattr(autoscaler, "advised_slots", lambda: found.pop(0))
    scaler = Autoscaler(Pool(2), 8, 2, worker=SimpleNamespace())
    while found:
        scaler.maybe_scale()
    names = [event.name for event in told]
    assert names == ["watch.pool_held", "watch.pool_led", "watch.pool_resized", "watch.pool_held"]


def test_it_looks_as_often_as_the_sweep(settings: Settings) -> None:
    """Celery's own distance of half a minute would be too long where nothing comes in."""
    settings.CELERY_GUARD = {**settings.CELERY_GUARD, "sweep": {"every": 0.7}}
    scaler = Autoscaler(Pool(2), 8, 2, worker=SimpleNamespace())
    asked: list[object] = []
    loop = SimpleNamespace(call_repeatedly=lambda *what: asked.extend(what))
    consumer = SimpleNamespace(on_task_message=set[object]())
    worker = SimpleNamespace(autoscaler=scaler, consumer=consumer)
    WorkerComponent.register_with_event_loop(cast(Any, None), worker, loop)
    assert asked == [0.7, scaler.maybe_scale]


# A new interpreter, to be known by its command line.
SCALED = {"DJANGO_SETTINGS_MODULE": "tests.watch.scaled_settings", "GUARD_TEST_RELAY": "new"}
JOBS = 6


def children(process: Process) -> int:
    """Pool processes of a worker."""
    found = 0
    for child in psutil.Process(process.pid).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            found += "guard_relay" not in child.cmdline()
    return found


def begun() -> int:
    """How many of the jobs have begun."""
    return sum(bool(traces(f"gate-{number}")) for number in range(JOBS))


def slots() -> list[int]:
    return list(WorkerPresence.objects.values_list("slots", flat=True))


@pytest.mark.bar
def test_a_backlog_grows_the_pool_and_its_end_shrinks_it(
    processes: Processes, scratch: object, settings: Settings
) -> None:
    """A worker of one process gets four while six jobs wait, and is one process again afterwards.

    Its relay reports the size it has, so the lane's window and slots follow.
    """
    settings.CELERY_GUARD = scaled_settings.CELERY_GUARD
    process = processes.worker([queue("medium")], options=["--autoscale=4,1"], env=SCALED)
    wait_for(lambda: slots() == [1], what="the worker's report")
    # The relay's own measurement, the only one in ten minutes, must not come after the test's.
    measured = Duty.objects.filter(name="snapshot", done_at__isnull=False)
    wait_for(measured.exists, timeout=60, what="the first measurement")
    for number in range(JOBS):
        tasks.hold.delay(f"gate-{number}")
    take_snapshot("default")
    wait_for(lambda: begun() == 4, timeout=60, what="four at once")
    wait_for(lambda: slots() == [4], what="the report of four")
    for number in range(JOBS):
        open_gate(f"gate-{number}")
    wait_for(lambda: Job.objects.filter(state="succeeded").count() == JOBS, what="all jobs")
    # The load of a moment ago is forgotten with time; here at once.
    LaneSnapshot.objects.update(arrivals_per_second=0, taken_at=timezone.now() - HOUR)
    LaneSample.objects.all().delete()
    take_snapshot("default")
    wait_for(lambda: slots() == [1], what="the report of one")
    wait_for(lambda: children(process) == 1, what="one process to be left")
    assert "watch.pool_resized before=1 now=4" in process.log


def test_without_fresh_advice_a_pool_stays_as_it_is(
    processes: Processes, scratch: object, settings: Settings
) -> None:
    """Advice of an hour ago neither grows nor shrinks anything; the log says that it holds."""
    settings.CELERY_GUARD = scaled_settings.CELERY_GUARD
    LaneSnapshot.objects.all().delete()
    process = processes.worker(options=["--autoscale=4,2"], env=SCALED)
    wait_for(lambda: slots() == [2], what="the worker's report")
    wait_for(lambda: "watch.pool_held slots=2" in process.log, what="the word that it holds")
    assert children(process) == 2
