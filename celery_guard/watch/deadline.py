"""Runs a read of the database that may hang, and waits for it no longer than it may take.

A server that is frozen answers neither yes nor no, and no time-out of its own fires. So the
read runs in a thread with its own connections; while one hangs, nobody starts another.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from django.db import connections

T = TypeVar("T")


class Overdue(Exception):
    """The read did not come back in time."""


class _Read(Generic[T]):
    def __init__(self, read: Callable[[], T]) -> None:
        self._read = read
        self._over = threading.Event()
        self._value: list[T] = []
        self._error: BaseException | None = None
        threading.Thread(target=self._run, name="guard-read", daemon=True).start()

    def _run(self) -> None:
        try:
            self._value.append(self._read())
        except BaseException as error:  # noqa: BLE001 - told to whoever waits, in its own thread
            self._error = error
        finally:
            connections.close_all()
            self._over.set()

    def wait(self, seconds: float) -> T:
        if not self._over.wait(seconds):
            raise Overdue
        if self._error is not None:
            raise self._error
        return self._value[0]

    @property
    def over(self) -> bool:
        return self._over.is_set()


class Deadline(Generic[T]):
    """One read at a time, each within ``seconds``; callers that come meanwhile share its answer."""

    def __init__(self, read: Callable[[], T], seconds: float) -> None:
        self._read = read
        self._seconds = seconds
        self._lock = threading.Lock()
        self._running: _Read[T] | None = None
        os.register_at_fork(after_in_child=self._after_fork)

    def _after_fork(self) -> None:
        # A fork copies neither the thread nor whoever held the lock.
        self._lock = threading.Lock()
        self._running = None

    def get(self) -> T:
        """What the read returns or raises.

        :raises Overdue: when it takes too long.
        """
        with self._lock:
            if self._running is None or self._running.over:
                self._running = _Read(self._read)
            running = self._running
        return running.wait(self._seconds)
