"""One decision: may this request have a place, and if not, why and until when."""

from __future__ import annotations

import dataclasses
import logging
from typing import Literal

from celery_guard.conf import Lane, guard_settings
from celery_guard.enqueue.admission import pressure, turns
from celery_guard.enqueue.admission.gate import Full, take
from celery_guard.enqueue.admission.limits import below, caps_of
from celery_guard.enqueue.admission.measured import Measured, measured
from celery_guard.enqueue.admission.retry_after import of_strain, of_tenant, retry_after, spread
from celery_guard.enqueue.request import retried
from celery_guard.errors import KeyBusy
from celery_guard.events import emit

Action = Literal["accept", "defer", "demote", "expire", "refuse"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What was decided for ``lane``; ``place`` is the reservation's id where a limit counts.

    ``limit`` names the setting that was reached and ``reason`` says how; both are empty where
    nothing was.
    """

    action: Action
    lane: Lane
    reason: str = ""
    limit: str = ""
    retry_after: float = 0.0
    pressure: float = 0.0
    predicted_wait: float | None = None
    place: int | None = None


def decide(using: str, lane: Lane, tenant: str, max_wait: float | None, turn: int = 0) -> Decision:
    """Take a place in ``lane`` for ``tenant``, or say what is in the way.

    A full lane does what its ``on_full`` says. A tenant over its own quota and a caller whose
    ``max_wait`` can't be kept are refused always.
    """
    first = decided = _in_lane(using, lane, tenant, max_wait, turn)
    while decided.action == "refuse" and _may_degrade(decided):
        match decided.lane.admission.on_full:
            case "demote" if (lower := below(guard_settings(), decided.lane)) is not None:
                decided = _in_lane(using, lower, tenant, max_wait, turn)
            case "defer" | "expire" as action:
                return dataclasses.replace(decided, action=action)
            case _:
                break
    if decided.action == "refuse":
        # What stood in the way first is what the caller asked for.
        return dataclasses.replace(first, action="refuse")
    if decided.lane is not lane:
        return dataclasses.replace(decided, action="demote", reason=first.reason, limit=first.limit)
    return decided


def _may_degrade(decided: Decision) -> bool:
    return decided.reason != "deadline" and not decided.reason.startswith("tenant")


def _in_lane(using: str, lane: Lane, tenant: str, max_wait: float | None, turn: int) -> Decision:
    lanes = measured(using)
    found, standing = lanes.get(lane.name), pressure.standing(using, lane, lanes)
    decision = Decision(
        action="accept",
        lane=lane,
        pressure=standing.pressure,
        predicted_wait=None if found is None or found.stale else found.wait,
    )
    waits = decision.predicted_wait
    if max_wait is not None and waits is not None and waits > max_wait:
        return _refused(decision, found, "deadline", "max_wait")
    if standing.blind:
        decision = _blind(using, decision, found)
        if decision.action == "refuse":
            return decision
    if (strain := standing.closing) is not None:
        later = of_strain(strain, lanes)
        return _refusal(decision, strain.reason, strain.limit, later)
    return _with_place(using, decision, found, tenant, turn)


def _blind(using: str, decision: Decision, found: Measured | None) -> Decision:
    emit("enqueue.admission_blind", logging.WARNING, using=using, lane=decision.lane.name)
    if not pressure.closes_blindly(decision.lane):
        return decision
    return _refused(decision, found, "blind", "snapshot.stale_after")


def _with_place(
    using: str, decision: Decision, found: Measured | None, tenant: str, turn: int
) -> Decision:
    lane = decision.lane
    if not (caps := caps_of(lane, tenant)):
        return decision
    try:
        taken = retried([using], lambda: take(using, caps, lane.name, tenant, turn))
    except KeyBusy:
        # Frozen, or asked at by too many: what can't be counted must not be let in.
        busy = _refused(decision, found, "busy", pressure.limit_name(lane.name, "depth"))
        return dataclasses.replace(busy, pressure=max(1.0, busy.pressure))
    if not isinstance(taken, Full):
        return dataclasses.replace(decision, place=taken)
    if not taken.cap.tenant:
        refused = _refused(decision, found, "depth", pressure.limit_name(lane.name, "depth"))
        if (taken.cap.most or 0) >= turns.SHARE:
            later = turns.in_turn(refused.retry_after, turn, taken.now)
            refused = dataclasses.replace(refused, retry_after=later)
        return dataclasses.replace(refused, pressure=max(1.0, refused.pressure))
    later = spread(taken.wait) if taken.wait is not None else of_tenant(taken.cap.most, found)
    limit = taken.reason.replace("tenant_", "tenants.")
    return dataclasses.replace(
        decision, action="refuse", reason=taken.reason, limit=limit, retry_after=later
    )


def _refused(decision: Decision, found: Measured | None, reason: str, limit: str) -> Decision:
    return _refusal(decision, reason, limit, retry_after(decision.lane, found, reason))


def _refusal(decision: Decision, reason: str, limit: str, later: float) -> Decision:
    return dataclasses.replace(
        decision, action="refuse", reason=reason, limit=limit, retry_after=later
    )
