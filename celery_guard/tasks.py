"""The toolkit's own tasks."""

from __future__ import annotations

import time
from typing import Any

from celery import Celery, shared_task, signature

from celery_guard.conf import Settings, sound_settings
from celery_guard.enqueue.canvas import CANVAS_TASK, starting
from celery_guard.enqueue.declaration import UNKEYED
from celery_guard.relay.floor import upkeep_once
from celery_guard.task import guarded_task

UPKEEP_TASK = "celery_guard.upkeep"


@guarded_task(key=UNKEYED, bind=True, name=CANVAS_TASK, ignore_result=True)
def start_canvas(self: Any, canvas: dict[str, Any]) -> None:
    """Start a frozen chord in the worker, so that no request touches the result backend."""
    with starting():
        signature(canvas, app=self.app).apply_async()


@guarded_task(key=UNKEYED, name="celery_guard.canary", ignore_result=True)
def canary() -> float:
    """Do nothing, and say what time it is here: ``guard_doctor`` sends one through every lane."""
    return time.time()


@shared_task(name=UPKEEP_TASK, ignore_result=True)
def upkeep() -> None:
    """The floor under the relays: release what is due and do every duty that is due.

    Beat sends it; it keeps jobs moving when no relay lives.
    """
    upkeep_once()


def schedule_upkeep(app: Celery) -> None:
    """Add the beat entry of :func:`upkeep` to ``app``; only a beat process looks at it.

    A tick that finds no worker in time expires, so that ticks never pile up.
    """
    # Wrong ones must not end Django's set-up: the check tells them, and beat can't send anyway.
    settings = sound_settings() or Settings()
    app.add_periodic_task(
        settings.sweep.every,
        # By name: the task itself would finalise the app while it is still being set up.
        signature(UPKEEP_TASK, app=app),
        name=UPKEEP_TASK,
        queue=settings.control_queue,
        expires=settings.sweep.every,
    )
