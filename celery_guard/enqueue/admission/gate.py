"""Grants places, exactly: one gate row per lane and tenant says how much room there is.

A gate is counted under its lock and then only counted down, by one conditional UPDATE a place;
it is counted anew when it is empty, and at least every ``HOLDS`` seconds. What leaves in between
makes it too small, never too large, so grants never pass the cap.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.db import connections, transaction
from django.db.models import DateTimeField, F, Q, Value
from django.db.models.expressions import ExpressionWrapper
from django.db.models.functions import Coalesce, Greatest

from celery_guard.conf import guard_settings
from celery_guard.enqueue.admission import turns
from celery_guard.enqueue.admission.counting import HORIZON, room_of
from celery_guard.enqueue.admission.limits import Cap
from celery_guard.enqueue.admission.models import Gate, Reservation
from celery_guard.jobs import on_wire
from celery_guard.jobs.clock import DatabaseNow, in_seconds
from celery_guard.jobs.deadlock import again_on_deadlock

HOLDS = 1.0
"""Seconds for which a count holds: for so long, jobs that came without a place are not seen."""
PACE = 1e-5
"""A full scope of n jobs is counted again after n times this: counting stays a small share."""

PATIENCE = "10s"
"""How long PostgreSQL waits for a gate: one held for longer is held by a process that is frozen."""
IDLE = 86400.0
"""Seconds after which a gate that nobody asks at is removed."""
_TAKE = on_wire.function("celery_guard_take_1", 13)
_RECOUNT = on_wire.function("celery_guard_recount_1", 11)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Full:
    """A cap that has no room: which, why, as of when, and for a rate when it has."""

    cap: Cap
    reason: str
    now: datetime
    wait: float | None = None


class Asker(NamedTuple):
    """For whom a place is taken, and in whose turn."""

    lane: str
    tenant: str
    turn: int


def take(using: str, caps: Sequence[Cap], lane: str, tenant: str, turn: int = 0) -> int | Full:
    """The id of a place within all ``caps``, committed; or the first cap that is full.

    Called outside any transaction of the site, or nobody would see the place in time.
    """
    return again_on_deadlock(lambda: _take(using, caps, Asker(lane, tenant, turn)))


def _take(using: str, caps: Sequence[Cap], asker: Asker) -> int | Full:
    if connections[using].vendor == "postgresql":
        place = _take_quickly(using, caps, asker)
        if place is None and _recount(using, caps):
            place = _take_quickly(using, caps, asker)
        if place is not None:
            return place
    return _take_counting(using, caps, asker)


def _take_quickly(using: str, caps: Sequence[Cap], asker: Asker) -> int | None:
    lane = next((cap for cap in caps if not cap.tenant), None)
    tenant = next((cap for cap in caps if cap.tenant), None)
    place = on_wire.called(
        connections[using],
        _TAKE,
        (
            None if lane is None else lane.scope,
            0 if lane is None else _kept(using, lane),
            *((None, 0.0, 0.0) if tenant is None else (tenant.scope, tenant.step, tenant.slack)),
            HOLDS,
            turns.LASTS,
            turns.TURNS,
            *(asker.turn, asker.lane, asker.tenant),
            guard_settings().admission.hold,
            PATIENCE,
        ),
    )
    return None if place is None else int(place)


def _recount(using: str, caps: Sequence[Cap]) -> bool:
    lane = next((cap for cap in caps if not cap.tenant), None)
    tenant = next((cap for cap in caps if cap.tenant), None)
    if lane is not None and _kept(using, lane):
        # Full lately: the slower way looks at whose turn it is.
        return False
    found = on_wire.called(
        connections[using],
        _RECOUNT,
        (
            *((None, None, None) if lane is None else (lane.scope, lane.lane, lane.most)),
            *(
                (None, None, None, None, 0.0)
                if tenant is None
                else (tenant.scope, tenant.tenant, tenant.most, tenant.running, tenant.slack)
            ),
            HOLDS,
            HORIZON.total_seconds(),
            PATIENCE,
        ),
    )
    # As text on the wire, as the driver reads it through a cursor.
    return found in ("t", True)


def _take_counting(using: str, caps: Sequence[Cap], asker: Asker) -> int | Full:
    _make_missing(using, caps)
    with transaction.atomic(using=using):
        _limit_patience(using)
        gates = _lock(using, caps)
        if len(gates) == len(caps):
            return _take_locked(using, caps, gates, asker)
    # One was just removed as idle; it is made anew.
    return _take_counting(using, caps, asker)


def _take_locked(
    using: str, caps: Sequence[Cap], gates: Mapping[str, Any], asker: Asker
) -> int | Full:
    # Those that are half over are counted along, or each of them would bring a request here in turn.
    along = any(_is_over(using, gates[cap.scope], cap) for cap in caps)
    looks = [_look(using, gates[cap.scope], cap, asker.turn, along=along) for cap in caps]
    if full := next((look for look in looks if look is not None), None):
        return full
    for cap in caps:
        _count_down(using, cap)
    until = in_seconds(guard_settings().admission.hold)
    place = Reservation(lane=asker.lane, tenant=asker.tenant, until=until)
    place.save(using=using, force_insert=True)
    return place.pk


def _make_missing(using: str, caps: Sequence[Cap]) -> None:
    # Before the locks, not under them: two that make each other's gates would deadlock.
    scopes = {cap.scope for cap in caps}
    rows = Gate.objects.using(using)
    if missing := scopes - set(rows.filter(pk__in=scopes).values_list("pk", flat=True)):
        new = [Gate(scope=scope) for scope in sorted(missing)]
        rows.bulk_create(new, ignore_conflicts=True)


def _limit_patience(using: str) -> None:
    # Elsewhere the database's own lock time-out holds.
    if connections[using].vendor == "postgresql":
        with connections[using].cursor() as cursor:
            # Like the one call of the quick way, it does not wait for the disk.
            cursor.execute(
                "SELECT set_config('lock_timeout', %s, true), "
                "set_config('synchronous_commit', 'off', true)",
                [PATIENCE],
            )


def _lock(using: str, caps: Sequence[Cap]) -> dict[str, Any]:
    rows = Gate.objects.using(using).filter(pk__in=[cap.scope for cap in caps])
    locked = rows.order_by("pk").select_for_update().annotate(now=DatabaseNow())
    return {gate.scope: gate for gate in locked}


def _look(using: str, gate: Any, cap: Cap, turn: int, *, along: bool) -> Full | None:
    if _is_over(using, gate, cap, HOLDS / 2 if along else HOLDS):
        room, busy = room_of(using, cap, gate.now)
        gate.room = 0 if busy else room
        Gate.objects.using(using).filter(pk=gate.pk).update(
            room=gate.room, counted_at=DatabaseNow()
        )
        if busy:
            return Full(cap=cap, reason="tenant_running", now=gate.now)
    if gate.room <= (0 if turns.is_turn(turn, gate.now) else _kept(using, cap)):
        if not cap.tenant:
            turns.note_full(using, cap.scope)
        return Full(cap=cap, reason="tenant_waiting" if cap.tenant else "depth", now=gate.now)
    if cap.step and (wait := _early(gate.next_at, gate.now) - cap.slack) > 0:
        return Full(cap=cap, reason="tenant_rate", now=gate.now, wait=wait)
    return None


def _kept(using: str, cap: Cap) -> int:
    return 0 if cap.tenant else turns.kept(using, cap.scope, cap.most)


def _is_over(using: str, gate: Any, cap: Cap, holds: float = HOLDS) -> bool:
    if gate.counted_at is None:
        return True
    # A gate that says full because of running jobs is empty too.
    bound = holds if gate.room > _kept(using, cap) else min(HOLDS, PACE * (cap.most or 1))
    return bool(gate.now - gate.counted_at > timedelta(seconds=bound))


def _early(next_at: datetime | None, now: datetime) -> float:
    return 0.0 if next_at is None else (next_at - now).total_seconds()


def _count_down(using: str, cap: Cap) -> None:
    changes: dict[str, Any] = {"room": F("room") - 1, "next_at": None}
    if cap.step:
        start = Greatest(Coalesce("next_at", DatabaseNow()), DatabaseNow())
        step = Value(timedelta(seconds=cap.step))
        changes["next_at"] = ExpressionWrapper(start + step, output_field=DateTimeField())
    Gate.objects.using(using).filter(scope=cap.scope).update(**changes)


def remove_idle(using: str) -> int:
    """Remove the gates that nobody has asked at for a day; return how many.

    A tenant that comes once must not leave a row for ever.
    """
    day = in_seconds(-IDLE)
    idle = Gate.objects.using(using).filter(
        Q(next_at=None) | Q(next_at__lt=day), Q(closed_until=None) | Q(closed_until__lt=day)
    )
    skips = connections[using].features.has_select_for_update_skip_locked
    with transaction.atomic(using=using):
        free = idle.filter(counted_at__lt=day).select_for_update(skip_locked=skips).order_by("pk")
        scopes = list(free.values_list("pk", flat=True)[:500])
        Gate.objects.using(using).filter(pk__in=scopes).delete()
    return len(scopes)
