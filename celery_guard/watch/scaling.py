"""How many workers a lane needs: a pure function of what was measured.

::

    steady  = (1 + headroom) * arrivals / service rate          slots that keep up
    drain   = (backlog - 5 s of arrivals) / (service rate * objective)   slots that catch up
    load    = max(steady + drain, busy)                          slots that have been in use
    workers = ceil(load / concurrency) + burst while the oldest job is late

The arrivals over the service rate are the slots that are busy on average (Little's law); to aim at
exactly those is to run at full load, where a queue never shrinks. The drain term empties what is
there within one objective. Both know a job by its arrival and its end; one of hours has neither for long,
so what is busy is a floor. It is a moving average: a noisy load would climb its own peaks. Around it: ceilings that nothing breaks, a tolerance, and the window of
Kubernetes' autoscaler for going down, so that whoever applies the advice need not calm it.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Literal

SOON = 5.0
"""Seconds of arrivals that are no backlog: jobs on their way to a free slot."""

DOWN = 1.5
"""The tolerance towards fewer workers is so much wider: with one for both, a noisy load that passes
it one way passes it the other way soon after."""

Limit = Literal["none", "max", "database", "provider"]
LIMITS: tuple[Limit, ...] = ("none", "max", "database", "provider")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What a lane has to do. Rates are per second; ``service_rate`` is that of one busy slot.

    ``backlog`` are the jobs that a free slot would start now; what a limit holds back is none.
    ``busy`` are the slots that a job has held lately, a moving average.
    """

    arrivals: float
    service_rate: float
    backlog: int
    age: float
    busy: float = 0.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What is wanted, and what must not be passed.

    ``database`` is the most workers that the database has connections for, None for no bound;
    ``provider_rate`` the most jobs a second that the services behind the lane take, 0 for no bound.
    """

    objective: float
    concurrency: int
    least: int
    most: int
    headroom: float
    tolerance: float
    burst: int
    database: int | None = None
    provider_rate: float = 0.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """The last advice, and the most that was needed at any time within the scale-in window."""

    advised: int
    needed: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """``workers`` to run; ``needed`` now, within the bounds and before any calming; ``uncapped``
    without bounds; ``limited_by`` names the bound that makes the difference."""

    workers: int
    needed: int
    uncapped: int
    limited_by: Limit


def advise(load: Load, policy: Policy, past: Past) -> Advice:
    """The workers to run, never above a ceiling, also where a floor is above it."""
    uncapped = _uncapped(load, policy)
    limit, ceiling = _ceiling(load, policy)
    needed = min(max(uncapped, policy.least), ceiling)
    return Advice(
        workers=min(_calmed(needed, policy, past), ceiling),
        needed=needed,
        uncapped=uncapped,
        limited_by=limit if uncapped > ceiling else "none",
    )


def _uncapped(load: Load, policy: Policy) -> int:
    steady = (1 + policy.headroom) * load.arrivals / load.service_rate
    behind = max(0.0, load.backlog - load.arrivals * SOON)
    slots = max(steady + behind / (load.service_rate * policy.objective), load.busy)
    late = load.backlog > 0 and load.age > policy.objective
    return math.ceil(slots / policy.concurrency) + (policy.burst if late else 0)


def _ceiling(load: Load, policy: Policy) -> tuple[Limit, int]:
    ceilings: dict[Limit, int] = {"max": policy.most}
    if policy.database is not None:
        ceilings["database"] = policy.database
    if policy.provider_rate:
        slots = (1 + policy.headroom) * policy.provider_rate / load.service_rate
        ceilings["provider"] = max(1, math.ceil(slots / policy.concurrency))
    return min(ceilings.items(), key=lambda named: named[1])


def _calmed(needed: int, policy: Policy, past: Past) -> int:
    if needed >= past.advised:
        wanted, tolerated = needed, policy.tolerance
    else:
        wanted, tolerated = min(past.advised, max(needed, past.needed)), policy.tolerance * DOWN
    near = abs(wanted - past.advised) <= tolerated * past.advised
    return past.advised if near else wanted
