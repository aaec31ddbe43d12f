"""Ask for room before the work is written."""

from __future__ import annotations

import dataclasses
import functools
import logging
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, cast

from django.db import transaction
from django.views.decorators.debug import sensitive_variables

from celery_guard.conf import guard_settings
from celery_guard.enqueue.admission import asked, places
from celery_guard.enqueue.admission.apart import apart
from celery_guard.enqueue.admission.counting import remove
from celery_guard.enqueue.admission.decide import Action, Decision, decide
from celery_guard.enqueue.admission.known import is_known
from celery_guard.enqueue.admission.limits import is_limited
from celery_guard.enqueue.admission.models import Reservation
from celery_guard.enqueue.admission.places import Place
from celery_guard.enqueue.admission.turns import turn_of
from celery_guard.enqueue.call import LONGEST, in_event_loop
from celery_guard.enqueue.declaration import Guarded
from celery_guard.enqueue.rollout.mode import choose
from celery_guard.enqueue.steering.demoting import lower_lane
from celery_guard.enqueue.steering.reading import switches
from celery_guard.enqueue.steering.refusing import SWITCH, limit_of, refusal, retry_later
from celery_guard.errors import AdmissionRefused
from celery_guard.events import emit

PLAIN = "plain"
"""The reason of an acceptance under a mode that makes no job of the call."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """What was decided about a request, and the place that it holds.

    ``action`` is ``accept``, ``refuse``, or the terms on which the job is taken: ``defer`` (due
    after ``retry_after``), ``demote`` (in ``lane``, a lower one), ``expire`` (it may wait so long
    and no longer). ``reason`` and ``limit`` say what was reached. ``pressure`` is 1 where a limit
    is reached; ``predicted_wait`` is in seconds, None while it is not known.

    As a context manager it gives the place back at the end of the block, if no job has taken it.
    """

    action: Action
    lane: str
    reason: str = ""
    limit: str = ""
    retry_after: float = 0.0
    pressure: float = 0.0
    predicted_wait: float | None = None
    _place: Place | None = None

    @property
    def granted(self) -> bool:
        """Whether the work may be enqueued."""
        return self.action != "refuse"

    def give_back(self) -> None:
        """Give the place back now, if no job has taken it."""
        if self._place is not None:
            give_back([self._place])

    def __enter__(self) -> Admission:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.give_back()


@sensitive_variables()
def admit(
    task: Any,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    tenant: str | None = None,
    max_wait: float | None = None,
    on_refused: Literal["raise", "return"] = "raise",
) -> Admission:
    """Whether there is room for this call of ``task`` now; if so, a place is kept for it.

    Call it before the transaction. The place is committed at once, kept for ``admission.hold``
    seconds (30), and taken by the next enqueue of ``task`` for the same tenant in this thread or
    request. Where no limit is set the answer is yes and costs no query. A call whose job is
    already there is never refused, and neither is one that its task's mode makes a plain one.

    :param tenant: counts for this tenant instead of the one the task's template gives.
    :param max_wait: seconds after which nobody needs the job any more: refused when the
        predicted wait is longer, and a job that has not started by then ends ``expired``.
    :param on_refused: ``"return"`` gives back a refusal instead of raising it.
    :raises AdmissionRefused: when a limit is reached or a switch says so; nothing was written.
    :raises TypeError: when ``task`` is not guarded or the arguments do not fit it.
    :raises MissingKey: when the key finds no value.
    :raises ValueError: when ``max_wait`` is no such time.
    """
    guarded = _guarded(task)
    check_wait(max_wait)
    identity = asked.identity(guarded, args, kwargs or {})
    counted = identity["tenant"] if tenant is None else tenant
    if (
        _may_refuse(guarded, counted, max_wait)
        and not choose(guarded, args, kwargs or {}, blind=in_event_loop()).guards
    ):
        # Its call will be a plain one, which takes no place and is refused by nobody.
        lane = guard_settings().lane(guarded.guard.lane)
        return _admission(Decision(action="accept", lane=lane, reason=PLAIN), None)
    decision = _decide(guarded, identity, counted, max_wait)
    if decision.action != "refuse":
        return _granted(guarded, identity["tenant"], decision, max_wait)
    emit(
        "enqueue.refused",
        task=guarded.name,
        lane=decision.lane.name,
        reason=decision.reason,
        retry_after=round(decision.retry_after, 1),
    )
    if on_refused == "raise":
        raise AdmissionRefused(decision.reason, decision.limit, decision.retry_after)
    return _admission(decision, None)


def _guarded(task: Any) -> Guarded:
    if getattr(task, "guard", None) is None:
        raise TypeError(f"admit takes a guarded task, not {task!r}")
    return cast(Guarded, task)


def check_wait(max_wait: float | None) -> None:
    """That ``max_wait`` is a time by which a job can expire.

    :raises ValueError: when it is none.
    """
    if max_wait is not None and not 0 < max_wait <= LONGEST:
        raise ValueError(f"max_wait must be above 0 and below a hundred years, not {max_wait!r}")


def _may_refuse(task: Guarded, tenant: str, max_wait: float | None) -> bool:
    settings = guard_settings()
    lane = settings.lane(task.guard.lane)
    limited = max_wait is not None or is_limited(settings, lane, tenant)
    return limited or bool(switches(task.guard.alias).refusals)


def _decide(
    task: Guarded, identity: Mapping[str, Any], tenant: str, max_wait: float | None
) -> Decision:
    using, settings = task.guard.alias, guard_settings()
    lane = settings.lane(task.guard.lane)
    if (switch := refusal(task, lane.name, identity, tenant)) is not None:
        return Decision(
            action="refuse",
            lane=lane,
            reason=SWITCH,
            limit=limit_of(switch),
            retry_after=retry_later(),
        )
    if (lower := lower_lane(task, lane, tenant)) is not None:
        lane = lower
    if max_wait is None and not is_limited(settings, lane, tenant):
        return Decision(action="accept", lane=lane)
    turn = turn_of(f"{task.name} {identity['key'] or identity['fingerprint']}")
    decision = apart(using, lambda: decide(using, lane, tenant, max_wait, turn))
    # Asked here, where the caller's own transaction is seen too.
    if decision.action == "accept" or not is_known(task, identity, using):
        return decision
    if decision.place is not None:
        apart(using, functools.partial(_remove, using, [decision.place]))
    return Decision(action="accept", lane=lane, reason="known")


def _granted(task: Guarded, tenant: str, decision: Decision, max_wait: float | None) -> Admission:
    options = _terms(task, decision, max_wait)
    if decision.place is None and not options:
        return _admission(decision, None)
    if decision.action != "accept":
        emit(
            "enqueue.degraded",
            task=task.name,
            lane=decision.lane.name,
            action=decision.action,
            reason=decision.reason,
        )
    else:
        emit("enqueue.admitted", logging.DEBUG, task=task.name, lane=decision.lane.name)
    place = Place(
        using=task.guard.alias,
        task=task.name,
        lane=decision.lane.name,
        tenant=tenant,
        id=decision.place,
        options=options,
        forget_at=places.forget_after(),
    )
    places.hold(place)
    return _admission(decision, place)


def _terms(task: Guarded, decision: Decision, max_wait: float | None) -> dict[str, Any]:
    lane, options = decision.lane, dict[str, Any]()
    if lane.name != task.guard.lane:
        options["queue"] = lane.queue
    if decision.action == "defer":
        options["countdown"] = decision.retry_after
    if decision.action == "expire":
        options["expires"] = lane.admission.ttl or lane.objective
    if max_wait is not None:
        options["expires"] = min(max_wait, options.get("expires", max_wait))
    return options


def _admission(decision: Decision, place: Place | None) -> Admission:
    return Admission(
        action=decision.action,
        lane=decision.lane.name,
        reason=decision.reason,
        limit=decision.limit,
        retry_after=decision.retry_after,
        pressure=decision.pressure,
        predicted_wait=decision.predicted_wait,
        _place=place,
    )


def give_back(held: Sequence[Place]) -> None:
    """Give back those of ``held`` that no committed job has taken.

    One that an open transaction has consumed is left to that transaction.
    """
    unspent = [place for place in held if not place.spent]
    for place in unspent:
        place.forget_at = time.monotonic()
        place.spend()
    for using in sorted({place.using for place in unspent}):
        ids = [place.id for place in unspent if place.using == using and place.id is not None]
        if ids:
            apart(using, functools.partial(_remove, using, ids))


def _remove(using: str, ids: Sequence[int]) -> None:
    with transaction.atomic(using=using):
        remove(using, Reservation.objects.using(using).filter(pk__in=ids))
