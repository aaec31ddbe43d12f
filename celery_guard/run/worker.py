"""What a guarded task needs to know of the Celery worker around it.

Everything here leans on Celery's and billiard's insides; it is kept in one place for that.
"""

from __future__ import annotations

import time
from typing import Any

from billiard import common
from celery import _state
from celery.exceptions import WorkerShutdown, WorkerTerminate
from celery.fixups.django import DjangoFixup
from celery.signals import worker_before_create_process, worker_init
from celery.worker import state
from django.db import Error as DatabaseFault
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

LOOKS = 8
"""How often a dying pool child is looked at, each time after twice as long, before Celery's timer."""
IDLE = 60.0
"""Seconds an unused connection is kept: a firewall may have forgotten it after longer."""
_USED = "celery_guard_used"


def shutting_down(error: BaseException) -> bool:
    """Whether ``error`` is the worker's end coming through the body, not the body's own doing."""
    if isinstance(error, WorkerShutdown | WorkerTerminate | KeyboardInterrupt):
        return True
    asked = (state.should_stop, state.should_terminate)
    return bool(vars(common)["_should_have_exited"][0]) or any(
        a not in (None, False) for a in asked
    )


def discard(connection: BaseDatabaseWrapper) -> None:
    """Close a connection whose state nobody knows; the next use opens a new one.

    An open transaction on it is rolled back by the server.
    """
    # Without this, Django keeps a connection that was closed inside a block, to refuse its use.
    connection.in_atomic_block = False
    connection.run_on_commit = []
    try:
        connection.close()
    except DatabaseFault:
        # It was dead already, and Django has dropped it whatever close() said.
        connection.connection = None


@worker_before_create_process.connect(weak=False, dispatch_uid="celery_guard.run.reaping")
def reap_at_once(sender: Any = None, **_: object) -> None:
    """Let the main process learn within a moment that a pool child has died.

    The kernel closes a dying process' files before it can be reaped. Celery looks once, when the
    files close, finds a child that still seems to live, and meets its end up to five seconds later.
    """
    if "_event_process_exit" in vars(sender):
        return
    usual = sender._event_process_exit

    def look(hub: Any, process: Any) -> None:
        usual(hub, process)
        look_again(hub, process, 0)

    def look_again(hub: Any, process: Any, looks: int) -> None:
        if looks:
            sender.maintain_pool()
        # A body may have closed the files of a process that lives: then not for ever.
        if process in sender._pool and looks < LOOKS:
            hub.call_later(0.02 * 2**looks, look_again, hub, process, looks + 1)

    sender._event_process_exit = look


@worker_init.connect(weak=False, dispatch_uid="celery_guard.run.worker")
def keep_connections(sender: Any = None, **_: object) -> None:
    """Let guarded tasks keep their database connection from one task to the next.

    Celery closes every connection before and after every task. Around a guarded task the
    ledger's connection stays instead: the claim finds out if it has died and renews it. Other
    aliases follow Django's ``CONN_MAX_AGE``. Plain tasks, and sites that set
    ``CELERY_DB_REUSE_MAX``, are left to Celery. Under gevent and eventlet every task is a
    greenlet with connections of its own, so nothing is kept.
    """
    if not _has_lasting_threads(sender):
        return
    for fixup in sender.app._fixups:
        if isinstance(fixup, DjangoFixup) and not fixup.worker_fixup.db_reuse_max:
            _Keeper(fixup.worker_fixup).install()


def _has_lasting_threads(worker: Any) -> bool:
    pool = getattr(worker, "pool_cls", "")
    name = pool if isinstance(pool, str) else pool.__module__
    return not any(green in name for green in ("gevent", "eventlet"))


class _Keeper:
    def __init__(self, fixup: Any) -> None:
        self._close_all = fixup.close_database
        self._fixup = fixup

    def install(self) -> None:
        # Celery's signal handlers look this name up on the instance at each task.
        self._fixup.close_database = self.close_database

    def close_database(self, **signal: Any) -> None:
        guard = getattr(_state.get_current_task(), "guard", None)
        if guard is None:
            self._close_all(**signal)
            return
        for connection in connections.all(initialized_only=True):
            if connection.alias == guard.alias and self._is_fit(connection):
                continue
            if connection.connection is not None:
                connection.close_if_unusable_or_obsolete()

    def _is_fit(self, connection: BaseDatabaseWrapper) -> bool:
        now = time.monotonic()
        # Kept with the connection, which is one thread's alone.
        idle = now - vars(connection).get(_USED, now)
        vars(connection)[_USED] = now
        if connection.in_atomic_block or connection.errors_occurred or idle > IDLE:
            discard(connection)
        return True
