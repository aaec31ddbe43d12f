"""Hosting: every worker has its relay, the relay never outlives it, and it costs little."""

import os
import signal
from pathlib import Path

import psutil
import pytest
from celery import current_app

from celery_guard.models import LaneLead, LaneSnapshot, WorkerPresence
from celery_guard.relay.broker_app import load_app, path_of
from celery_guard.relay.host import read_worker, write_worker
from celery_guard.relay.presence import Worker
from tests.kit.brokers import on_broker
from tests.kit.wait import wait_for
from tests.project.shop.tasks import mark, plain
from tests.project.shop.witness import traces
from tests.relay.ledger import queue_of

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _new_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    """The relay is started as on a site, not forked."""
    monkeypatch.setenv("GUARD_TEST_RELAY", "new")


def relays_of(process) -> list[psutil.Process]:
    """The living relay children of a worker."""
    found = []
    for pid in process.members():
        try:
            if "guard_relay" in (command := psutil.Process(pid).cmdline()) and command:
                found.append(psutil.Process(pid))
        except psutil.NoSuchProcess:
            continue
    return found


def only_relay(process) -> psutil.Process:
    return wait_for(lambda: relays_of(process), timeout=60, what="the hosted relay")[0]


@pytest.mark.parametrize("pool", ["prefork", "threads", "solo"])
def test_a_worker_of_any_pool_hosts_one_relay_and_takes_it_along(worker, pool):
    """One child process leads the lanes, reports the worker, and ends with it."""
    process = worker(pool=pool, concurrency=2, queues=[queue_of("high")])
    relay = only_relay(process)
    row = wait_for(WorkerPresence.objects.first, what="the worker's report")
    assert row.queues == [queue_of("high")]
    assert row.slots == (1 if pool == "solo" else 2)
    wait_for(lambda: LaneLead.objects.filter(owner__isnull=False).exists(), what="a lead")
    assert len(relays_of(process)) == 1
    process.stop(timeout=40)
    assert not relay.is_running() or relay.status() == psutil.STATUS_ZOMBIE
    assert not WorkerPresence.objects.exists()
    assert not LaneLead.objects.filter(owner__isnull=False).exists()


def test_a_dead_relay_is_started_again(worker):
    """The worker looks after its child: another one takes its place."""
    process = worker(queues=[queue_of("high")])
    first = only_relay(process)
    first.kill()
    wait_for(
        lambda: any(found.pid != first.pid for found in relays_of(process)),
        timeout=40,
        what="a new relay",
    )


def before_its_broker(processes, url: str):
    """A worker that still looks for its broker."""
    argv = ["-m", "celery", "-A", "tests.project.celery", "worker", "-c", "1"]
    return processes.python(*argv, env={"GUARD_TEST_BROKER_URL": url})


@pytest.mark.bar
def test_a_worker_that_has_not_met_its_broker_hosts_a_relay(processes, own_redis):
    """Nothing listens yet: the lanes are led and measured all the same, and no second relay follows."""
    own_redis.stop()
    with on_broker(own_redis.url):
        process = before_its_broker(processes, own_redis.url)
        relay = only_relay(process)
        wait_for(LaneLead.objects.filter(owner__isnull=False).exists, timeout=60, what="a lead")
        wait_for(LaneSnapshot.objects.exists, timeout=60, what="a measurement")
        wait_for(WorkerPresence.objects.exists, timeout=60, what="the worker's report")
        handle = mark.delay("met")
        own_redis.start()
        wait_for(lambda: handle.job.state == "succeeded", timeout=60, what="the job")
        assert [found.pid for found in relays_of(process)] == [relay.pid]
        process.stop(timeout=40)
    assert not relay.is_running() or relay.status() == psutil.STATUS_ZOMBIE


def test_a_relay_that_dies_before_its_worker_has_met_the_broker_is_started_again(
    processes, own_redis
):
    """Else nobody would measure, rescue or fall back for the rest of the outage."""
    own_redis.stop()
    process = before_its_broker(processes, own_redis.url)
    first = only_relay(process)
    first.kill()
    wait_for(
        lambda: any(found.pid != first.pid for found in relays_of(process)),
        timeout=60,
        what="a new relay",
    )
    os.kill(process.pid, signal.SIGKILL)


def test_a_relay_that_dies_while_the_broker_is_away_is_started_again(processes, own_redis):
    """The worker had met it, and has lost it since: its event loop and timer are gone."""
    with on_broker(own_redis.url):
        process = before_its_broker(processes, own_redis.url)
        handle = mark.delay("met")
        wait_for(lambda: handle.job.state == "succeeded", timeout=60, what="the job")
        own_redis.stop()
        wait_for(lambda: "Trying again" in process.log, timeout=60, what="the loss")
        (first,) = relays_of(process)
        first.kill()
        wait_for(
            lambda: any(found.pid != first.pid for found in relays_of(process)),
            timeout=60,
            what="a new relay",
        )
        os.kill(process.pid, signal.SIGKILL)


def test_the_relay_of_a_worker_that_never_met_its_broker_ends_with_it(processes, own_redis):
    """It is killed while it still looks for the broker."""
    own_redis.stop()
    process = before_its_broker(processes, own_redis.url)
    relay = only_relay(process)
    os.kill(process.pid, signal.SIGKILL)
    wait_for(lambda: not psutil.pid_exists(relay.pid), timeout=40, what="the relay's end")


def test_the_relay_ends_when_its_worker_is_killed(worker):
    """kill -9 of the worker's main process: no orphan goes on alone."""
    process = worker(queues=[queue_of("high")])
    relay = only_relay(process)
    os.kill(process.pid, signal.SIGKILL)
    wait_for(lambda: not psutil.pid_exists(relay.pid), timeout=40, what="the relay's end")


def test_hosting_can_be_switched_off(worker):
    """`relay.host = False`: for sites that run dedicated relays."""
    process = worker(queues=[queue_of("high")], env={"GUARD_TEST_HOST_RELAY": "0"})
    # Once it has run a task its start is over, and a relay would be there.
    with load_app().connection_for_write() as connection:
        plain.apply_async(("ran",), queue=queue_of("high"), connection=connection)
    wait_for(lambda: traces("ran"), what="a task to run")
    assert relays_of(process) == []


def test_the_worker_reaches_its_child_unchanged():
    """Name, queues and slots survive the command line."""
    worker = Worker(name="w@host", queues=("a", 'b"c'), slots=3)
    assert read_worker(write_worker(worker)) == worker
    assert read_worker(None) is None


def test_another_process_finds_the_same_app():
    """The app's import path is found however the worker was told of it."""
    app = load_app()
    path = path_of(app)
    assert path
    assert load_app(path) is app
    assert app is current_app._get_current_object()
    assert Path(path.partition(":")[0])
