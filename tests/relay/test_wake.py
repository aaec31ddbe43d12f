"""Waking: the commit never waits, the relay hears, and silence is noticed."""

import os
import threading
import time

import pytest
from celery import current_app
from django.db import connection, connections, transaction

from celery_guard import conf
from celery_guard.conf import guard_settings
from celery_guard.events import receive
from celery_guard.models import LaneLead
from celery_guard.relay import bell
from celery_guard.relay import wake as waking
from celery_guard.relay.channel import channel_for, read_note, write_note
from celery_guard.relay.listen import Listener
from celery_guard.relay.wake import wake
from tests.factories import make_job
from tests.kit.wait import wait_for
from tests.relay.ledger import jobs_on_redis

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def heard():
    """What a listening relay hears."""
    notes: list[set[str]] = []
    listener = Listener("default", notes.append, current_app._get_current_object())
    listener.start()
    try:
        wait_for(lambda: listener.hears or channel_for("default").kind == "poll", what="listening")
        # A test before may have stopped this process' Redis: what is woken just after is dropped.
        wait_for(lambda: time.monotonic() > waking._waker._closed_until, what="the breaker")
        notes.clear()
        yield notes
    finally:
        listener.stop()
        wait_for(lambda: not listener.hears, what="the listener's end")


@pytest.fixture(params=["redis", "notify"])
def channel(request, settings):
    """Both kinds of wake channel."""
    if request.param == "notify" and connection.vendor != "postgresql":
        pytest.skip("NOTIFY is PostgreSQL's")
    guard = settings.CELERY_GUARD
    settings.CELERY_GUARD = {**guard, "relay": {**guard["relay"], "wake": request.param}}
    return request.param


def test_a_commit_wakes_the_relay(channel, heard):
    """Over Redis and by NOTIFY alike, the lanes of the commit arrive at once."""
    wake({"high", "low"}, "default")
    wait_for(lambda: {"high", "low"} in heard, what="the wake")


def test_the_commits_of_a_moment_are_one_wake(heard):
    """A burst costs the channel a few messages, not one each."""
    for _ in range(200):
        wake({"high"}, "default")
    wait_for(lambda: heard, what="a wake")
    wake({"low"}, "default")
    wait_for(lambda: any("low" in lanes for lanes in heard), what="the last wake")
    assert len(heard) < 50


def test_dense_commits_share_longer_moments():
    """A commit after a pause wakes at once; while they come close together, a moment is longer."""
    waker, least = waking._Waker(), guard_settings().relay.linger
    assert waker._moment(10.0) == least
    assert [waker._moment(least) for _ in range(3)] == [2 * least, 4 * least, 4 * least]
    assert waker._moment(4 * least) == least


@pytest.mark.parametrize("kind", ["redis", "notify"])
def test_a_woken_relay_does_not_wait_for_its_poll(relay, settings, kind):
    """With a poll of a minute, only the wake explains a delivery."""
    if kind == "notify" and connection.vendor != "postgresql":
        pytest.skip("NOTIFY is PostgreSQL's")
    guard = settings.CELERY_GUARD
    settings.CELERY_GUARD = {**guard, "relay": {**guard["relay"], "wake": kind}}
    relay(env={"DJANGO_SETTINGS_MODULE": "tests.relay.settings_slow_poll", "GUARD_TEST_WAKE": kind})
    # The first look happens at the start; it must be over before the job is there.
    wait_for(lambda: LaneLead.objects.filter(owner__isnull=False).count() >= 3, what="the leads")
    job = make_job()
    wait_for(lambda: _woken(job.pk), timeout=15, what="the delivery")


def _woken(job: int) -> bool:
    # Repeated, since the relay may not be listening yet when it is told first.
    wake({"high"}, "default")
    return jobs_on_redis()[job] == 1


def test_a_frozen_redis_costs_the_caller_nothing(own_redis, settings):
    """The wake is sent by a thread with time-outs and a breaker; the caller only notes it."""
    settings.CELERY_GUARD = {**settings.CELERY_GUARD, "redis": own_redis.url}
    failures = []
    receive(lambda event: failures.append(event) if event.name == "relay.wake_failed" else None)
    own_redis.freeze()
    try:
        started = time.thread_time()
        for _ in range(1000):
            wake({"high"}, "default")
        # Work of this thread, not time on the wall: it must not sleep, whatever else runs here.
        assert time.thread_time() - started < 1.0
        wait_for(lambda: failures, what="the thread to give up")
    finally:
        own_redis.thaw()


def test_a_dead_redis_never_raises_into_a_commit(settings):
    """Waking is best effort: the promise is kept already, the poll finds the row."""
    settings.CELERY_GUARD = {**settings.CELERY_GUARD, "redis": "redis://127.0.0.1:1/0"}
    with transaction.atomic():
        make_job()
        transaction.on_commit(lambda: wake({"high"}, "default"))


def test_a_forked_child_wakes_with_a_thread_of_its_own(heard):
    """After a fork nothing of the parent's thread, lock or socket is used."""
    wake({"high"}, "default")
    wait_for(lambda: heard, what="the parent's wake")
    heard.clear()
    child = os.fork()
    if child == 0:
        wake({"low"}, "default")
        deadline = time.monotonic() + 10
        while waking._waker._noted and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.5)
        os._exit(0)
    os.waitpid(child, 0)
    wait_for(lambda: {"low"} in heard, what="the child's wake")


def _open(waker):
    waker.note({"high"}, "default")
    wait_for(lambda: "default" in waker._bells, what="the open connection")


def test_a_redis_that_freezes_later_costs_the_caller_nothing(own_redis, settings):
    """Answers that stay away are noticed, and only the thread waits for them."""
    settings.CELERY_GUARD = {**settings.CELERY_GUARD, "redis": own_redis.url}
    failures = []
    receive(lambda event: failures.append(event) if event.name == "relay.wake_failed" else None)
    waker = waking._Waker()
    _open(waker)
    own_redis.freeze()
    try:
        started = time.thread_time()
        for _ in range(1000):
            waker.note({"high"}, "default")
        assert time.thread_time() - started < 1.0
        wait_for(lambda: waker.note({"high"}, "default") or failures, what="the thread to give up")
        assert not waker._bells
    finally:
        own_redis.thaw()


def test_never_more_is_under_way_than_a_socket_holds(own_redis, settings):
    """However fast the commits are, a write can't come to a full buffer and wait there."""
    settings.CELERY_GUARD = {**settings.CELERY_GUARD, "redis": own_redis.url}
    ringing = bell.Bell(channel_for("default"), timeout=30.0)
    own_redis.freeze()
    try:
        rung = [ringing.ring("x" * 7000) for _ in range(2 * bell.MOST_UNANSWERED)]
    finally:
        own_redis.thaw()
    assert rung == [True] * bell.MOST_UNANSWERED + [False] * bell.MOST_UNANSWERED
    ringing.settle()
    assert ringing.ring("high")
    ringing.close()


def test_a_redis_that_comes_back_is_found_by_the_next_commit(own_redis, settings):
    """A connection that died is noticed before it is written to, and another one is made."""
    settings.CELERY_GUARD = {**settings.CELERY_GUARD, "redis": own_redis.url}
    waker = waking._Waker()
    _open(waker)
    own_redis.kill()
    own_redis.start()
    notes: list[set[str]] = []
    listener = Listener("default", notes.append, current_app._get_current_object())
    listener.start()
    try:
        wait_for(lambda: listener.hears, what="listening")
        # The first finds out that the connection is gone; a breaker may hold the next one back.
        wait_for(lambda: waker.note({"low"}, "default") or {"low"} in notes, what="the wake")
    finally:
        listener.stop()


def test_importing_starts_nothing_and_idling_ends_the_thread(monkeypatch):
    """No thread before the first commit, and none long after the last."""
    monkeypatch.setattr(waking, "IDLE", 0.05)
    waker = waking._Waker()
    assert waker._thread is None
    waker.note({"high"}, "default")
    thread = waker._thread
    assert thread is not None
    wait_for(lambda: waker._thread is None, what="the thread's end")
    thread.join(10)
    assert not thread.is_alive()
    assert not waker._bells


def test_a_listener_notices_that_its_channel_died(own_redis, settings):
    """A relay that hears nothing must know that it is deaf, so that it polls more often."""
    settings.CELERY_GUARD = {**settings.CELERY_GUARD, "redis": own_redis.url}
    notes: list[set[str]] = []
    listener = Listener("default", notes.append, current_app._get_current_object())
    listener.start()
    try:
        wait_for(lambda: listener.hears, what="listening")
        own_redis.kill()
        wait_for(lambda: not listener.hears, what="deafness")
        notes.clear()
        own_redis.start()
        wait_for(lambda: listener.hears, what="hearing again")
        assert notes[0] == set()
    finally:
        listener.stop()


def test_both_sides_choose_the_same_channel(settings):
    """Redis where there is one, else NOTIFY, else polling; the setting may say so outright."""
    guard = settings.CELERY_GUARD
    assert channel_for("default").kind == "redis"
    for wanted in ("notify", "poll"):
        settings.CELERY_GUARD = {**guard, "relay": {"wake": wanted}}
        expected = wanted if connection.vendor == "postgresql" else "poll"
        assert channel_for("default").kind == expected
    assert guard_settings() is conf.guard_settings()


def test_a_note_carries_lanes_and_a_long_one_means_all():
    """NOTIFY bounds its payload; too many lanes are simply all lanes."""
    assert read_note(write_note({"high", "low"})) == {"high", "low"}
    assert read_note(write_note({f"lane-{n}" * 10 for n in range(500)})) == set()


def test_the_waking_thread_leaves_the_callers_connection_alone(channel):
    """The thread's own connection is another one, and it is closed with the thread."""
    waker = waking._Waker()
    done = threading.Event()

    def run():
        waker._wake_all({"default": {"high"}})
        waker._close()
        assert connections["default"].connection is None
        done.set()

    with transaction.atomic():
        make_job()
        thread = threading.Thread(target=run)
        thread.start()
        assert done.wait(10)
        thread.join()
