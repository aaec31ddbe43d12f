"""New jobs that a switch sends to the next lower lane."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from celery_guard.conf import guard_settings
from celery_guard.conf.sections import Lane
from celery_guard.enqueue.admission.limits import below
from celery_guard.enqueue.call import in_event_loop
from celery_guard.enqueue.declaration import Guarded
from celery_guard.enqueue.request import identity_of
from celery_guard.enqueue.steering.reading import switches
from celery_guard.enqueue.steering.refusing import SWITCH
from celery_guard.events import emit

_ADDRESSED = ("exchange", "routing_key")


def demoted(
    task: Guarded, args: Sequence[Any], kwargs: Mapping[str, Any], options: Mapping[str, Any]
) -> dict[str, Any]:
    """The option that names another queue, for a call that a switch sends to a lower lane.

    A call that names an exchange, or a queue outside all lanes, keeps it.
    """
    if in_event_loop() or not switches(task.guard.alias).demotions:
        return {}
    settings = guard_settings()
    queue = options.get("queue")
    lane = settings.lane_of_queue(str(queue)) if queue else settings.lane(task.guard.lane)
    if lane.name not in settings.lanes or any(options.get(name) for name in _ADDRESSED):
        return {}
    lower = lower_lane(task, lane, identity_of(task, args, kwargs)["tenant"])
    if lower is None:
        return {}
    emit("enqueue.degraded", task=task.name, lane=lower.name, action="demote", reason=SWITCH)
    return {"queue": lower.queue}


def lower_lane(task: Guarded, lane: Lane, tenant: str) -> Lane | None:
    """Where a switch sends such a call instead of ``lane``; None where it stays."""
    demotions = switches(task.guard.alias).demotions
    if not any(switch.covers(lane.name, task.name, tenant) for switch in demotions):
        return None
    return below(guard_settings(), lane)
