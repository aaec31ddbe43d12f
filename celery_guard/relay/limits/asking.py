"""How dependencies stand, for a process that must never wait for Redis to say so."""

from __future__ import annotations

import dataclasses
import queue
import threading
import time
from collections.abc import Sequence

from celery_guard.errors import LimitsAway
from celery_guard.relay.limits import store
from celery_guard.relay.limits.answers import Reading
from celery_guard.relay.limits.database import DatabaseLimits
from celery_guard.relay.limits.rules import Rules

IDLE = 5.0
"""Seconds after which an unused thread ends."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """How dependencies stood at ``at``, by :func:`time.monotonic`."""

    readings: tuple[Reading, ...] = ()
    at: float = 0.0


_NONE = Answer()


class Asking:
    """Asks in a thread of its own, and tells what came back of an earlier question.

    The database is asked in place: whoever leads lanes waits for it anyway.
    """

    def __init__(self) -> None:
        self._todo: queue.SimpleQueue[Sequence[Rules]] = queue.SimpleQueue()
        self._told: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        self._pending = False
        self._thread: threading.Thread | None = None

    def answer(self, wanted: Sequence[Rules]) -> Answer:
        """The newest answer there is, perhaps none, or of other dependencies."""
        if not wanted:
            return _NONE
        if isinstance(store.limits(), DatabaseLimits):
            return _ask(wanted)
        found = _NONE
        while not self._told.empty():
            found, self._pending = self._told.get(), False
        dead = self._thread is None or not self._thread.is_alive()
        # It may have ended just before it could have heard the last question.
        if dead or not self._pending:
            self._pending = True
            self._todo.put(wanted)
        if dead:
            self._thread = threading.Thread(target=self._run, name="guard-limits", daemon=True)
            self._thread.start()
        return found

    def _run(self) -> None:
        while True:
            try:
                wanted = self._todo.get(timeout=IDLE)
            except queue.Empty:
                return
            self._told.put(_ask(wanted))


def _ask(wanted: Sequence[Rules]) -> Answer:
    try:
        readings = store.look(wanted)
    except LimitsAway:
        # Workers ask on their own, and are refused; what was known last is as good as anything.
        return _NONE
    return Answer(readings=tuple(readings), at=time.monotonic())
