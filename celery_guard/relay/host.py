"""Every Celery worker hosts a relay: a child process of its own, so that nobody has to run one.

Never a thread: a worker forks, and a forked copy of a thread's locks and sockets is a trap. The
child is a fresh interpreter that runs ``guard_relay``. It finds the site as the worker did: the
same environment and import path, ``DJANGO_SETTINGS_MODULE``, and the app under the import path at
which the worker's own app was found (else Django's set-up makes the default app).

It is started before the worker looks for its broker: while that is away somebody has to say so, to
measure, and to rescue. The worker looks after its child once a second: from its event loop's timer, and
between two attempts to reach its broker, where it asks itself whether it is to end. The child ends when
the worker is gone, however it went.
"""

from __future__ import annotations

import ctypes
import dataclasses
import json
import logging
import os
import signal
import subprocess
import sys
import time
from typing import Any

from celery.signals import celeryd_after_setup, worker_ready, worker_shutdown

from celery_guard.conf import guard_settings
from celery_guard.events import emit
from celery_guard.relay.breaker import Breaker
from celery_guard.relay.broker_app import path_of
from celery_guard.relay.desk import Desk
from celery_guard.relay.presence import Worker

LOOK_EVERY = 1.0
"""Seconds between two looks at whether the child lives."""
STEADY = 30.0
"""Seconds after which a child that dies is started again at once."""
END_WITHIN = 10.0
"""Seconds a child has to end by itself when its worker shuts down."""

_PR_SET_PDEATHSIG = 1
_LOOKS = "celery_guard_looks"


class Host:
    """One worker's relay process, started again whenever it dies."""

    def __init__(self, controller: Any) -> None:
        app, worker = controller.app, worker_of(controller)
        self.queues = worker.queues
        self._controller = controller
        self.desk = Desk.fresh()
        self._command = [sys.executable, "-m", "django", "guard_relay"]
        self._command += ["--parent", str(os.getpid()), "--worker", write_worker(worker)]
        self._command += ["--desk", str(self.desk.fd)]
        if path := path_of(app):
            self._command += ["--app", path]
        self._child: subprocess.Popen[bytes] | None = None
        self._breaker = Breaker(first=1.0, longest=60.0)
        self._started_at = 0.0
        self._start_at = 0.0

    def look(self) -> None:
        """Start the child if it isn't running and its pause is over; say how large the pool is."""
        self.desk.say_size(_slots(self._controller))
        now = time.monotonic()
        if self._child is not None:
            code = self._child.poll()
            if code is None:
                return
            self._died(code, now)
        if now >= self._start_at:
            self._start(now)

    def _died(self, code: int, now: float) -> None:
        self._child = None
        if now - self._started_at > STEADY:
            self._breaker.worked()
        self._start_at = now + self._breaker.failed()
        emit("relay.child_died", logging.WARNING, code=code, again_in=self._start_at - now)

    def _start(self, now: float) -> None:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p or "." for p in sys.path)}
        # A session of its own: Ctrl-C in a terminal is for the worker, which lets its jobs end
        # first, and their retries still need a relay.
        self._child = subprocess.Popen(
            self._command,
            env=environment,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            pass_fds=[self.desk.fd],
        )
        self._started_at = now
        emit("relay.child_started", pid=self._child.pid)

    def end(self) -> None:
        """Tell the child to finish, wait for it, and kill it if it doesn't."""
        child, self._child = self._child, None
        if child is None or child.poll() is not None:
            return
        child.terminate()
        try:
            child.wait(END_WITHIN)
        except subprocess.TimeoutExpired:
            emit("relay.child_killed", logging.WARNING, pid=child.pid)
            child.kill()
            child.wait()


_hosts: list[Host] = []


@celeryd_after_setup.connect(dispatch_uid="celery_guard.relay.host")
def start_hosting(instance: Any, **_: Any) -> None:
    """Give the worker its relay, before it looks for its broker, which may be away for long."""
    if _host_of(instance) is not None:
        _look_between_attempts()


def _look_between_attempts() -> None:
    # Only a worker has it. The main process forks, so a thread can't look.
    from celery.worker.consumer import consumer

    module: Any = consumer
    asked = module.maybe_shutdown
    if vars(asked).get(_LOOKS):
        return

    def maybe_shutdown() -> None:
        asked()
        if _hosts:
            try:
                _hosts[0].look()
            except OSError as error:
                # No memory for a process, perhaps; the worker goes on looking for its broker.
                emit("relay.child_not_started", logging.WARNING, why=str(error))

    vars(maybe_shutdown)[_LOOKS] = True
    module.maybe_shutdown = maybe_shutdown


@worker_ready.connect(dispatch_uid="celery_guard.relay.host")
def go_on_hosting(sender: Any, **_: Any) -> None:
    """Look after the relay of the worker that is ready. Called again after each reconnect."""
    if (host := _host_of(sender.controller)) is not None:
        # The worker clears its timer when it loses the broker, and is ready anew afterwards.
        sender.timer.call_repeatedly(LOOK_EVERY, host.look)


def _host_of(controller: Any) -> Host | None:
    if not guard_settings().relay.host or not os.environ.get("DJANGO_SETTINGS_MODULE"):
        return None
    if _hosts and _hosts[0].queues != worker_of(controller).queues:
        # The site has added a queue since. The relay says on its command line what is served.
        end_hosting()
    if not _hosts:
        _hosts.append(Host(controller))
    _hosts[0].look()
    return _hosts[0]


@worker_shutdown.connect(dispatch_uid="celery_guard.relay.host")
def end_hosting(**_: Any) -> None:
    """End the relay after the worker's last job, so that what those jobs enqueued goes out."""
    while _hosts:
        _hosts.pop().end()


def advised_slots() -> int | None:
    """How large this worker's pool should be, as its relay says; None when that is not known.

    Never waits. The relay begins to say it a moment after the first call.
    """
    if not _hosts:
        return None
    _hosts[0].desk.ask()
    return _hosts[0].desk.advised()


def worker_of(controller: Any) -> Worker:
    """What the Celery worker that ``controller`` runs serves."""
    queues = tuple(controller.app.amqp.queues.consume_from)
    return Worker(name=controller.hostname, queues=queues, slots=_slots(controller))


def _slots(controller: Any) -> int:
    # A pool of greenlets counts those that run as its processes; only a scaled one can change.
    if controller.autoscale and (scaler := controller.autoscaler):
        # This is asked before the pool is filled, too.
        return max(1, int(scaler.processes if controller.pool.active else scaler.min_concurrency))
    limit = getattr(controller.pool, "limit", None) or controller.concurrency
    return int(limit or 1)


def write_worker(worker: Worker) -> str:
    """A worker as one argument of a command line."""
    return json.dumps(dataclasses.asdict(worker))


def read_worker(text: str | None) -> Worker | None:
    """The worker of :func:`write_worker`."""
    if not text:
        return None
    fields = json.loads(text)
    return Worker(name=fields["name"], queues=tuple(fields["queues"]), slots=fields["slots"])


def die_with_parent() -> None:
    """Ask Linux for TERM when the parent dies. Elsewhere the loop notices within a moment."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
