"""What a plain enqueue has to do with admission: the terms of its place, or asking for one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from celery_guard.conf import guard_settings
from celery_guard.enqueue.admission import places, pressure
from celery_guard.enqueue.admission.admit import admit
from celery_guard.enqueue.admission.limits import is_limited
from celery_guard.enqueue.admission.measured import measured
from celery_guard.enqueue.declaration import Guarded
from celery_guard.enqueue.request import identity_of
from celery_guard.enqueue.steering.demoting import demoted
from celery_guard.enqueue.steering.refusing import check_switches
from celery_guard.outbox.capture import capturing_everything, collection

ON_OVERLOAD = ("signal", "raise")


def on_terms(
    task: Guarded, args: Sequence[Any], kwargs: Mapping[str, Any], options: dict[str, Any]
) -> dict[str, Any]:
    """``options`` of a call with those of its place; explicit ones win.

    ``on_overload="raise"`` asks for a place first. A later step of a canvas is work that is
    already owed, and a frozen one is not enqueued yet: neither is asked about.

    :raises AdmissionRefused: where the caller said ``on_overload="raise"``, or a switch says so.
    :raises ValueError: for any other ``on_overload`` than these two.
    """
    wanted = options.pop("on_overload", "signal")
    if wanted not in ON_OVERLOAD:
        raise ValueError(f'{task.name}: on_overload must be "signal" or "raise", not {wanted!r}')
    owed = capturing_everything() is not None or collection() is not None
    if wanted == "raise" and not owed:
        admit(task, args, kwargs)
    if owed:
        return options
    terms = places.terms(task.name, lambda: identity_of(task, args, kwargs)["tenant"])
    settled = "queue" in terms and "queue" not in options
    options = {**terms, **options}
    check_switches(task, args, kwargs, options.get("queue"))
    # Whoever asked for a place was told of a switch then.
    return options if settled else {**options, **demoted(task, args, kwargs, options)}


def pressure_of(using: str, name: str) -> float:
    """The pressure on the lane ``name`` as last measured; 0 where no limit is set."""
    settings = guard_settings()
    lane = settings.lane(name)
    if not is_limited(settings, lane, ""):
        return 0.0
    return pressure.pressure_on(using, lane, measured(using))
