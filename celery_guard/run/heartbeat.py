"""Keeps up the leases of bodies that outlive a third of theirs, and says what bodies tell.

One thread per process, started by the first claim, with a connection of its own that is open
only while a lease or a report needs it. It beats from the process that executes, so a process that is
stopped or dead loses its leases.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from typing import TYPE_CHECKING

from django.db import Error as DatabaseFault
from django.db import connections

from celery_guard.events import emit
from celery_guard.faults import fault_point
from celery_guard.jobs import progress, rescuing
from celery_guard.relay.limits import store
from celery_guard.relay.limits.rules import Rules
from celery_guard.run.owner import owner
from celery_guard.run.worker import discard

if TYPE_CHECKING:
    from celery_guard.run.job import CurrentJob


REPORT_EVERY = 1.0
"""Least time between two reports of one job's progress, in seconds."""


class Heart:
    """The heartbeats of one process."""

    def __init__(self) -> None:
        self._jobs: set[CurrentJob] = set()
        self._shortest = threading.TIMEOUT_MAX
        self._sooner = threading.Event()
        threading.Thread(target=self._beat, name="guard-heartbeat", daemon=True).start()

    def watch(self, job: CurrentJob) -> None:
        """Keep up the lease of ``job`` until :meth:`forget`."""
        job.beaten = time.monotonic()
        self._jobs.add(job)
        if job.lease < self._shortest:
            self._shortest = job.lease
            self._sooner.set()

    def forget(self, job: CurrentJob) -> None:
        """The attempt has ended."""
        self._jobs.discard(job)

    def hurry(self) -> None:
        """A body has told something."""
        self._sooner.set()

    def _beat(self) -> None:
        while True:
            self._sooner.wait(self._pause())
            self._sooner.clear()
            try:
                self.beat_once()
            except Exception as error:  # noqa: BLE001 - a dead heart would lose every lease
                emit("run.heartbeat_failed", logging.ERROR, why=repr(error))

    def _pause(self) -> float:
        now = time.monotonic()
        due = (job.reported + REPORT_EVERY - now for job in list(self._jobs) if job.told)
        # Three looks in the time in which a beat must come.
        return max(0.0, min((self._shortest / 9, *due)))

    def beat_once(self) -> None:
        """Extend every lease of which a third has gone by; one statement a database and length.

        Keep what bodies have told of their progress since, too, and look whether the limits have
        heard of the last end: an idle process has no next job that would.
        """
        now = time.monotonic()
        self._report(now)
        late = [job for job in list(self._jobs) if now - job.beaten > job.lease / 3]
        groups: dict[tuple[str, float], list[CurrentJob]] = {}
        for job in late:
            groups.setdefault((job.using, job.lease), []).append(job)
        for (using, lease), jobs in groups.items():
            _extend(using, lease, jobs)
        # Leases first: a store of limits that hangs must not cost them.
        _renew(late)
        store.settle()
        if not late and not any(now - job.reported < 3 * REPORT_EVERY for job in list(self._jobs)):
            connections.close_all()

    def _report(self, now: float) -> None:
        due = [j for j in list(self._jobs) if j.told and now - j.reported >= REPORT_EVERY]
        groups: dict[str, list[CurrentJob]] = {}
        for job in due:
            groups.setdefault(job.using, []).append(job)
        for using, jobs in groups.items():
            _report(using, jobs)


def _report(using: str, jobs: list[CurrentJob]) -> None:
    told = {job.id: word for job in jobs for word in _taken(job)}
    for job in jobs:
        job.reported = time.monotonic()
    try:
        progress.report(using, owner(), told)
        _hear(using, jobs)
    except DatabaseFault as error:
        # Only a display: the next thing that the body tells replaces it.
        emit("run.progress_not_kept", logging.WARNING, using=using, why=str(error))
        discard(connections[using])


def _taken(job: CurrentJob) -> list[progress.Told]:
    with contextlib.suppress(IndexError):
        return [job.told.pop()]
    return []


def _hear(using: str, jobs: list[CurrentJob]) -> None:
    asked = progress.asked_to_stop(using, owner(), [job.id for job in jobs if not job.cancel_asked])
    for job in jobs:
        if job.id in asked and not job.cancel_asked:
            job.cancel_asked = True
            emit("run.cancel_heard", job=job.id, task=job.task.name)


def _extend(using: str, lease: float, jobs: list[CurrentJob]) -> None:
    begun = time.monotonic()
    try:
        fault_point("run.beating", *(job.id for job in jobs))
        gone = rescuing.beat(using, owner(), {job.id: job.fence for job in jobs}, lease)
        fault_point("run.beaten", *(job.id for job in jobs))
        _hear(using, jobs)
    except DatabaseFault as error:
        # The lease has two thirds left, and the next look is near.
        emit("run.heartbeat_failed", logging.WARNING, using=using, why=str(error))
        discard(connections[using])
        return
    for job in jobs:
        job.beaten = begun
        if job.id in gone and not job.lost:
            job.lost = True
            emit("run.lease_lost", logging.WARNING, job=job.id, task=job.task.name)


def _renew(jobs: list[CurrentJob]) -> None:
    held: dict[tuple[float, Rules], list[str]] = {}
    for job in jobs:
        for permit in () if job.lost else job.permits.copy():
            held.setdefault((job.lease, permit.rules), []).append(permit.name)
    for (lease, rules), permits in held.items():
        store.renew(rules, permits, lease)


_heart: tuple[int, Heart] | None = None
_starting = threading.Lock()


def heart() -> Heart:
    """This process' heart; a forked child grows its own."""
    global _heart  # noqa: PLW0603 - one per process is the point
    if _heart is None or _heart[0] != os.getpid():
        with _starting:
            if _heart is None or _heart[0] != os.getpid():
                _heart = (os.getpid(), Heart())
    return _heart[1]


def _after_fork() -> None:
    global _starting  # noqa: PLW0603 - one per process is the point
    # Another thread of the parent may have held it.
    _starting = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
