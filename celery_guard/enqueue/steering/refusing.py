"""New requests that a switch turns away."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from celery import current_task

from celery_guard.conf import guard_settings
from celery_guard.enqueue.admission.known import is_known
from celery_guard.enqueue.admission.retry_after import spread
from celery_guard.enqueue.call import in_event_loop
from celery_guard.enqueue.declaration import Guarded
from celery_guard.enqueue.request import identity_of
from celery_guard.enqueue.steering.reading import switches
from celery_guard.errors import AdmissionRefused
from celery_guard.events import emit
from celery_guard.jobs.pausing import Switched

SWITCH = "switch"
"""The reason of such a refusal."""


def check_switches(
    task: Guarded, args: Sequence[Any], kwargs: Mapping[str, Any], queue: object = None
) -> None:
    """Refuse a new request of ``task`` that a switch turns away.

    What a task asks for while it runs is owed work, and a call whose job is there already adds
    nothing: neither is refused.

    :param queue: the queue the call names, if it names one.
    :raises AdmissionRefused: with the switch and its reason; nothing was written.
    """
    if in_event_loop():
        # Nothing can be read there, and no job is written: the message counts as owed work, which
        # a worker adopts.
        return
    settings = guard_settings()
    lane = settings.lane_of_queue(str(queue)) if queue else settings.lane(task.guard.lane)
    if not switches(task.guard.alias).refusals:
        return
    identity = identity_of(task, args, kwargs)
    if (switch := refusal(task, lane.name, identity, identity["tenant"])) is not None:
        later = retry_later()
        emit(
            "enqueue.refused",
            task=task.name,
            lane=lane.name,
            reason=SWITCH,
            retry_after=round(later, 1),
        )
        raise AdmissionRefused(SWITCH, limit_of(switch), later)


def refusal(task: Guarded, lane: str, identity: Mapping[str, Any], tenant: str) -> Switched | None:
    """The switch that turns such a request away; None when it may come."""
    using = task.guard.alias
    covering = (s for s in switches(using).refusals if s.covers(lane, task.name, tenant))
    switch = next(covering, None)
    if switch is None or _in_a_task() or is_known(task, identity, using):
        return None
    return switch


def _in_a_task() -> bool:
    return bool(cast(Any, current_task))


def limit_of(switch: Switched) -> str:
    """What a refusal names as reached."""
    return f"switch {switch.id} ({switch.reason})"


def retry_later() -> float:
    """Seconds to say: a person decides when it is over, so as late as is ever said."""
    return spread(guard_settings().admission.retry_after)
