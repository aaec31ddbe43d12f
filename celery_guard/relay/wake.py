"""The web process' side: tell the relay that something may be due, and never wait for it.

A lazily started daemon thread gathers the commits of a moment into one wake: the first after a
pause goes at once, and the moments are longer while commits come close together. It keeps one
connection, with short time-outs, and reads the answers to its wakes when it sends the next; and
it has a breaker. A frozen Redis costs a commit nothing, and a lost wake costs the job one poll.
The committing thread itself touches no socket.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Collection

from django.db import connections

from celery_guard.conf import guard_settings
from celery_guard.events import emit
from celery_guard.outbox.hook import on_committed
from celery_guard.relay.bell import Bell
from celery_guard.relay.breaker import Breaker
from celery_guard.relay.channel import channel_for, write_note

IDLE = 30.0
"""Seconds without a commit after which the thread closes its connections and ends."""
MOST_MOMENTS = 4
"""How many times ``relay.linger`` the commits share a wake while they come close together."""


@on_committed
def wake(lanes: Collection[str], using: str) -> None:
    """Say that something may be due in ``lanes``. Returns at once and never raises."""
    _waker.note(lanes, using)


class _Waker:
    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        self._lock = threading.Lock()
        self._noted: dict[str, set[str]] = {}
        self._something = threading.Event()
        self._thread: threading.Thread | None = None
        self._bells: dict[str, Bell] = {}
        self._breaker = Breaker()
        self._closed_until = 0.0
        self._woke_at = 0.0
        self._moments = 1

    def note(self, lanes: Collection[str], using: str) -> None:
        with self._lock:
            self._noted.setdefault(using, set()).update(lanes)
            self._something.set()
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="guard-wake", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while self._wait():
            # The first commit after a pause wakes at once; those of a moment share the next.
            lingered = time.monotonic() - self._woke_at
            if (left := self._moment(lingered) - lingered) > 0:
                time.sleep(left)
            self._wake_all(self._take())

    def _moment(self, lingered: float) -> float:
        # A relay that finds work looks again within milliseconds by itself. So where commits come
        # close after each other the moments grow, and a busy site pays for fewer wakes.
        least = guard_settings().relay.linger
        dense = lingered < least * MOST_MOMENTS
        self._moments = min(MOST_MOMENTS, self._moments * 2) if dense else 1
        return least * self._moments

    def _wait(self) -> bool:
        while not self._something.wait(IDLE):
            with self._lock:
                idle = time.monotonic() - self._woke_at >= IDLE
                if idle and not self._something.is_set():
                    # Under the lock: the next commit starts another thread, whose connections
                    # are its own, or sees this one go on.
                    self._close()
                    self._thread = None
                    return False
        return True

    def _take(self) -> dict[str, set[str]]:
        with self._lock:
            self._something.clear()
            self._woke_at = time.monotonic()
            noted, self._noted = self._noted, {}
            return noted

    def _wake_all(self, noted: dict[str, set[str]]) -> None:
        if time.monotonic() < self._closed_until:
            return
        for using, lanes in noted.items():
            try:
                self._send(using, write_note(lanes))
                self._breaker.worked()
            # Whatever it is, it must not end the thread: the next commit needs it.
            except Exception as error:  # noqa: BLE001
                self._failed(error)

    def _failed(self, error: Exception) -> None:
        self._close()
        self._closed_until = time.monotonic() + self._breaker.failed()
        emit("relay.wake_failed", logging.WARNING, error=f"{type(error).__name__}: {error}")

    def _send(self, using: str, note: str) -> None:
        # While a bell fits, nothing is looked up: under load this thread wakes hundreds of times
        # a second, and the committing threads wait for the interpreter meanwhile.
        if (bell := self._bell(using)) is not None:
            if not bell.ring(note):
                bell.settle()
                bell.ring(note)
            return
        channel = channel_for(using)
        if channel.kind == "redis":
            self._bells[using] = Bell(channel, _timeout())
            self._bells[using].ring(note)
        elif channel.kind == "notify":
            # This thread's own connection, in autocommit: inside the caller's transaction a
            # NOTIFY would make all commits of the server wait in line.
            with connections[using].cursor() as cursor:
                cursor.execute("SELECT pg_notify(%s, %s)", [channel.name, note])

    def _bell(self, using: str) -> Bell | None:
        bell = self._bells.get(using)
        if bell is not None and not bell.fits():
            self._bells.pop(using).close()
            return None
        return bell

    def _close(self) -> None:
        for bell in self._bells.values():
            bell.close()
        self._bells.clear()
        connections.close_all()


def _timeout() -> float:
    return min(0.5, guard_settings().relay.timeout)


_waker = _Waker()

# A forked child has no thread, a lock in an unknown state, and sockets it must not use.
os.register_at_fork(after_in_child=_waker.begin)
