"""The relay's second thread: duties, and the report of the worker that hosts the relay.

It has a database connection of its own, so that a slow purge or snapshot delays no release.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
import uuid
from collections.abc import Callable

from django.db import Error as DatabaseError
from django.db import connections

from celery_guard.conf import guard_settings
from celery_guard.events import emit
from celery_guard.jobs.deadlock import again_on_deadlock
from celery_guard.relay import presence
from celery_guard.relay.breaker import Breaker
from celery_guard.relay.desk import Desk
from celery_guard.relay.duties import Rota
from celery_guard.relay.presence import Worker

Adviser = Callable[[str, Worker], tuple[int, float] | None]
_advisers: list[Adviser] = []


def advise_with(adviser: Adviser) -> Adviser:
    """Let ``adviser`` say how large a worker's pool should be, and for how many seconds that counts.

    Asked with the ledger's alias after each report of a worker that wants advice; None says nothing,
    and what was said last runs out.
    """
    _advisers.append(adviser)
    return adviser


class Upkeep:
    """Does what is due of all duties until stopped; ``worker`` is reported as alive meanwhile.

    :param desk: where the worker says how large it is, and hears how large it should be.
    """

    def __init__(self, using: str, worker: Worker | None = None, desk: Desk | None = None) -> None:
        self._using = using
        self._worker = worker
        self._desk = desk
        self._owner = uuid.uuid4()
        self._report_at = 0.0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="guard-upkeep", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self, seconds: float) -> None:
        """Let the duty at hand end, but wait no longer than ``seconds`` for it."""
        self._stopping.set()
        self._thread.join(seconds)

    def _run(self) -> None:
        rota = Rota(self._using)
        breaker = Breaker()
        while not self._stopping.is_set():
            try:
                again_on_deadlock(self._report)
                again_on_deadlock(rota.do_what_is_due)
                breaker.worked()
            except DatabaseError as error:
                self._lost(error)
                self._stopping.wait(breaker.failed())
            self._stopping.wait(min(rota.pause(), self._report_in()))
        self._leave()

    def _lost(self, error: Exception) -> None:
        failed = f"{type(error).__name__}: {error}"
        emit("relay.database_lost", logging.WARNING, using=self._using, error=failed)
        connections[self._using].close()

    def _report(self) -> None:
        if self._worker is not None and self._report_in() <= 0:
            self._worker = self._resized(self._worker)
            presence.report(self._using, self._owner, self._worker)
            self._report_at = time.monotonic() + guard_settings().sweep.every
            self._advise(self._worker)

    def _resized(self, worker: Worker) -> Worker:
        size = self._desk.size() if self._desk is not None else 0
        return dataclasses.replace(worker, slots=size) if size else worker

    def _advise(self, worker: Worker) -> None:
        if self._desk is None or not self._desk.asks():
            return
        for adviser in _advisers:
            if (advice := adviser(self._using, worker)) is not None:
                self._desk.advise(*advice)

    def _report_in(self) -> float:
        return 60.0 if self._worker is None else self._report_at - time.monotonic()

    def _leave(self) -> None:
        try:
            if self._worker is not None:
                presence.leave(self._using, self._owner)
        except DatabaseError as error:
            # The row goes silent by itself, and is removed within the hour.
            self._lost(error)
        finally:
            connections[self._using].close()
