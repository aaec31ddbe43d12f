"""The limits that hold for one request: what the settings say about its lane and its tenant."""

from __future__ import annotations

import dataclasses
import hashlib
import logging
from collections.abc import Mapping
from typing import cast

from billiard.exceptions import SoftTimeLimitExceeded
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from celery_guard.conf import Lane, LimitsOf, Settings, Tenants, guard_settings, tenant_settings
from celery_guard.events import emit


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Cap:
    """What one scope may hold: ``most`` jobs and places, ``running`` jobs that run.

    A request takes ``step`` seconds of its rate and may be ``slack`` seconds early; 0: no rate.
    ``tenant`` is empty for a lane's cap.
    """

    scope: str
    lane: str
    tenant: str
    most: int | None
    running: int | None = None
    step: float = 0.0
    slack: float = 0.0


def caps_of(lane: Lane, tenant: str) -> list[Cap]:
    """The caps that a request has to stay within, in the order in which they are locked."""
    caps = []
    if lane.admission.depth is not None:
        scope = scope_of(lane.name)
        caps.append(Cap(scope=scope, lane=lane.name, tenant="", most=lane.admission.depth))
    if tenant and (cap := _cap_of(tenant, lane.name)) is not None:
        caps.append(cap)
    return caps


def scope_of(lane: str) -> str:
    """The name of a lane's gate."""
    return f"lane:{lane}"


def _cap_of(tenant: str, lane: str) -> Cap | None:
    allowed = allowance_of(tenant)
    if (allowed.waiting, allowed.running, allowed.rate) == (None, None, None):
        return None
    step = allowed.rate.interval if allowed.rate else 0.0
    # By digest: some databases hold "acme" and "ACME" for the same.
    digest = hashlib.sha256(tenant.encode()).hexdigest()[:32]
    return Cap(
        scope=f"tenant:{digest}",
        lane=lane,
        tenant=tenant,
        most=allowed.waiting,
        running=allowed.running,
        step=step,
        slack=step * (_burst_of(allowed) - 1),
    )


def _burst_of(allowed: Tenants) -> int:
    count = allowed.rate.count if allowed.rate else 1.0
    return allowed.burst or max(1, int(count / 10))


def allowance_of(tenant: str) -> Tenants:
    """What ``tenant`` may ask for: the settings, with what the site's callable says instead.

    Where it fails, or returns something that is no such setting, the settings hold.
    """
    tenants = guard_settings().tenants
    try:
        return _own_of(tenants, tenant)
    except SoftTimeLimitExceeded:
        raise  # The limit of the body that asks.
    # The site's own code: what it raises must not stop requests or hold up a lane.
    except Exception as error:  # noqa: BLE001
        failed = f"{type(error).__name__}: {error}"
        emit("enqueue.tenant_unknown", logging.ERROR, tenant=tenant, error=failed)
        return tenants


def limits_of_site(tenants: Tenants) -> LimitsOf | None:
    """The site's callable; None where there is none.

    :raises ImproperlyConfigured: when its path leads to nothing that can be called.
    """
    if not isinstance(tenants.limits, str):
        return tenants.limits
    try:
        found = import_string(tenants.limits)
    except ImportError as error:
        raise ImproperlyConfigured(f"tenants.limits: {error}") from error
    if not callable(found):
        raise ImproperlyConfigured(f"tenants.limits: {tenants.limits!r} can't be called")
    return cast(LimitsOf, found)


def _own_of(tenants: Tenants, tenant: str) -> Tenants:
    limits = limits_of_site(tenants)
    own = None if limits is None else limits(tenant)
    if not own:
        return tenants
    path = f"tenants.limits({tenant!r})."
    if not isinstance(own, Mapping) or "limits" in own:
        raise ImproperlyConfigured(f"{path} must be a dict of limits or None, not {own!r}")
    return tenant_settings(own, path)


def is_limited(settings: Settings, lane: Lane, tenant: str) -> bool:
    """Whether anything is set that could refuse a request for ``lane``; costs no query."""
    tenants = settings.tenants
    return (
        settings.admission.pool is not None
        or any(_has_limits(other) for other in (lane, *above(settings, lane)))
        or bool(tenant and (tenants.waiting or tenants.running or tenants.rate or tenants.limits))
    )


def _has_limits(lane: Lane) -> bool:
    own = lane.admission
    return not (own.depth is own.age is own.wait is None)


def above(settings: Settings, lane: Lane) -> list[Lane]:
    """The lanes that ``lane`` gives way to: those with a shorter objective."""
    return [other for other in settings.lanes.values() if other.objective < lane.objective]


def below(settings: Settings, lane: Lane) -> Lane | None:
    """The next lower lane: the one with the next longer objective."""
    lower = [other for other in settings.lanes.values() if other.objective > lane.objective]
    return min(lower, key=lambda other: other.objective, default=None)


def is_lowest(settings: Settings, lane: Lane) -> bool:
    """Whether ``lane`` is the one that gives way first."""
    return below(settings, lane) is None and bool(above(settings, lane))


def share_of(settings: Settings, lane: Lane) -> float:
    """At which share of the limits of others ``lane`` gives way: 1 for the highest lane."""
    objectives = sorted({other.objective for other in settings.lanes.values()} | {lane.objective})
    if len(objectives) < 2:
        return 1.0
    place = objectives.index(lane.objective) / (len(objectives) - 1)
    return 1.0 - settings.admission.reserve * place
