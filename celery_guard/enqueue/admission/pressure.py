"""How near a lane is to its limits, as one number: at 1 it takes no more.

A lane feels its own limits, and, by its share of them, the pressure on the lanes above it and on
the database pool: the lowest gives way first, the highest keeps what the others leave.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, cast

from django.db import connections

from celery_guard.conf import Lane, guard_settings
from celery_guard.enqueue.admission.limits import above, is_lowest, scope_of, share_of
from celery_guard.enqueue.admission.measured import Measured
from celery_guard.enqueue.admission.models import Gate
from celery_guard.jobs.clock import in_seconds

REOPENS = 0.1
"""How far the pressure must fall below 1 before a closed lane opens again."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Strain:
    """One pressure on a lane: why, by which setting, and how near (1: reached).

    ``of`` is the lane whose jobs are too many, ``why`` by its own limit's name; at ``share`` of
    that limit the pressure is 1.
    """

    reason: str
    limit: str
    pressure: float
    of: Lane
    why: str
    share: float = 1.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How one lane stands for whoever asks: ``closing`` is what closes it, None while it is open.

    ``blind``: the measurements of it and of those above it are too old to go by.
    """

    pressure: float
    blind: bool
    closing: Strain | None


_stood: dict[tuple[str, str], tuple[Mapping[str, Measured], Standing]] = {}


def standing(using: str, lane: Lane, lanes: Mapping[str, Measured]) -> Standing:
    """How ``lane`` stands by what was measured: worked out once a reading.

    The database pool is no part of a reading: where it has a limit it is looked at each time.
    """
    if guard_settings().admission.pool is not None:
        return _stand(using, lane, lanes)
    read, found = _stood.get((using, lane.name), (None, None))
    if read is not lanes or found is None:
        found = _stand(using, lane, lanes)
        _stood[using, lane.name] = lanes, found
    return found


def _stand(using: str, lane: Lane, lanes: Mapping[str, Measured]) -> Standing:
    return Standing(
        pressure=pressure_on(using, lane, lanes),
        blind=is_blind(lane, lanes),
        closing=closing(using, lane, lanes),
    )


def strains(using: str, lane: Lane, lanes: Mapping[str, Measured]) -> Iterator[Strain]:
    """What weighs on ``lane`` as measured, but for its own depth, which is counted exactly."""
    share = share_of(guard_settings(), lane)
    for strain in _own(lane, lanes):
        if strain.reason != "depth":
            yield strain
    for other in above(guard_settings(), lane):
        for strain in _own(other, lanes):
            given = strain.pressure / share
            yield dataclasses.replace(strain, reason="gives_way", pressure=given, share=share)
    if (limit := guard_settings().admission.pool) is not None:
        used = _pool_use(using) / (limit * share)
        yield Strain(reason="pool", limit="admission.pool", pressure=used, of=lane, why="pool")


def pressure_on(using: str, lane: Lane, lanes: Mapping[str, Measured]) -> float:
    """The highest pressure on ``lane``, its own depth as last measured included."""
    own = [strain.pressure for strain in _own(lane, lanes)]
    return max([*own, *(strain.pressure for strain in strains(using, lane, lanes))], default=0.0)


def _own(lane: Lane, lanes: Mapping[str, Measured]) -> Iterator[Strain]:
    found, limits = lanes.get(lane.name), lane.admission
    if found is None or found.stale:
        return
    for reason, value, limit in (
        ("depth", found.ready, limits.depth),
        ("age", found.age, limits.age),
        ("wait", found.wait, limits.wait),
    ):
        if limit is not None and value is not None:
            name = limit_name(lane.name, reason)
            yield Strain(reason=reason, limit=name, pressure=value / limit, of=lane, why=reason)


def limit_name(lane: str, reason: str) -> str:
    """The setting that holds a lane's limit."""
    return f"lanes.{lane}.admission.{reason}"


def _pool_use(using: str) -> float:
    stats = pool_stats(using)
    if stats is None:
        return 0.0
    taken = stats["pool_size"] - stats["pool_available"] + stats.get("requests_waiting", 0)
    return float(taken / stats["pool_max"])


def pool_stats(using: str) -> Mapping[str, Any] | None:
    """How Django's own connection pool of this process stands; None without one."""
    # Only what Django itself pools can be seen from here, and only from this process.
    pool = getattr(connections[using], "pool", None)
    return None if pool is None else cast(Mapping[str, Any], pool.get_stats())


def closing(using: str, lane: Lane, lanes: Mapping[str, Measured]) -> Strain | None:
    """What closes ``lane`` now, or None; one that was closed opens a little below its limit.

    It stays closed for two snapshots after the pressure has fallen, so that it does not flap.
    """
    heaviest = max(strains(using, lane, lanes), key=lambda s: s.pressure, default=None)
    found = lanes.get(lane.name)
    closed = found is not None and found.closed
    if heaviest is not None and heaviest.pressure >= (1.0 - REOPENS if closed else 1.0):
        _keep_closed(using, lane)
        return heaviest
    return heaviest if closed else None


def _keep_closed(using: str, lane: Lane) -> None:
    scope, every = scope_of(lane.name), guard_settings().snapshot.every
    gates = Gate.objects.using(using)
    # At most one write in a snapshot's time, whoever comes first.
    late = gates.filter(pk=scope).exclude(closed_until__gt=in_seconds(every))
    if not late.update(closed_until=in_seconds(2 * every)):
        gates.bulk_create(
            [Gate(scope=scope, closed_until=in_seconds(2 * every))], ignore_conflicts=True
        )


def is_blind(lane: Lane, lanes: Mapping[str, Measured]) -> bool:
    """Whether the measurements of ``lane`` and those above it are too old to go by."""
    watched = [lane, *above(guard_settings(), lane)]
    return any(found.stale for other in watched if (found := lanes.get(other.name)))


def closes_blindly(lane: Lane) -> bool:
    """Whether ``lane`` takes nothing while nobody measures: only the lowest."""
    return is_lowest(guard_settings(), lane)
