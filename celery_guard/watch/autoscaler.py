"""Grows and shrinks one worker's own pool by the advice for the lanes that it serves.

::

    CELERY_WORKER_AUTOSCALER = "celery_guard.watch.autoscaler:Autoscaler"
    celery -A mysite worker -Q high --autoscale=16,2

Celery's own autoscaler counts the messages that a worker has taken from the broker, so it can't see
a backlog. This one is told by the relay that the worker hosts, which reads the snapshot. Here, in the
worker's event loop, nothing asks a database and nothing waits.
"""

from __future__ import annotations

import logging
from typing import Any

from celery.worker.autoscale import Autoscaler as CelerysAutoscaler

from celery_guard.conf import guard_settings
from celery_guard.events import emit
from celery_guard.relay.host import advised_slots


class Autoscaler(CelerysAutoscaler):
    """Celery's autoscaler with the lanes' advice in the place of its own count.

    The pool stays within ``--autoscale=max,min``, and as it is while there is no fresh advice.
    The advice has been calmed already, so it is followed at once in both directions; a process that
    runs a job is never ended, so a busy pool shrinks as its jobs end.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # Celery's event loop looks at this distance, and at each message.
        self.keepalive = guard_settings().sweep.every
        self._holding = False

    def _maybe_scale(self, req: Any = None) -> bool:
        advised = advised_slots()
        self._note(advised is None)
        if advised is None:
            return False
        size = self.processes
        wanted = max(self.min_concurrency, min(advised, self.max_concurrency))
        if wanted > size:
            self._grow(wanted - size)  # type: ignore[attr-defined]
        elif wanted < size:
            self._shrink(size - wanted)  # type: ignore[attr-defined]
        if self.processes == size:
            return False
        emit("watch.pool_resized", before=size, now=self.processes, advised=advised)
        return True

    def _note(self, holding: bool) -> None:
        if holding and not self._holding:
            emit("watch.pool_held", logging.WARNING, slots=self.processes)
        elif self._holding and not holding:
            emit("watch.pool_led", slots=self.processes)
        self._holding = holding
