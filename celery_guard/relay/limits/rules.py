"""The settings of a dependency as the numbers that the stores reckon with: whole microseconds."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import math

from celery_guard.conf import Dependency, guard_settings
from celery_guard.errors import GuardError
from celery_guard.rate import Rate
from celery_guard.relay.limits.changes import Change, changes

MICRO = 1_000_000


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """One rate: microseconds from token to token, and how many may come at once."""

    interval: int
    burst: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BreakerRule:
    """When to open: ``ratio`` in millionths, times in microseconds."""

    ratio: int
    samples: int
    window: int
    pause: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """All that holds for one dependency; ``concurrency`` 0 is no bound.

    ``payable`` is the largest cost that a call may have, 0 for any: the settings say it, and a
    smaller burst that was set at run time does not change it. ``errors``, in millionths: the share
    of failed calls above which the rate is cut; 0 for never.
    """

    name: str
    buckets: tuple[Bucket, ...]
    concurrency: int
    breaker: BreakerRule | None
    payable: int = 0
    errors: int = 0


def rules_of(name: str) -> Rules:
    """The rules of the dependency ``name`` now: those of the settings, and what was set at run time.

    :raises GuardError: when the settings know no such dependency.
    """
    settings = guard_settings()
    known = settings.dependencies
    if name not in known:
        close = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known) or 'none'}"
        raise GuardError(f"no dependency {name!r} in CELERY_GUARD; {hint}")
    change = changes(settings.using).get(name)
    return _rules(known[name]) if change is None else changed_rules(known[name], change)


@functools.lru_cache(maxsize=256)
def changed_rules(dependency: Dependency, change: Change) -> Rules:
    """The rules of ``dependency`` under ``change``."""
    own, other = _rules(dependency), _rules(change.applied_to(dependency))
    return dataclasses.replace(other, payable=max(own.payable, other.payable))


@functools.lru_cache(maxsize=256)
def _rules(dependency: Dependency) -> Rules:
    given = dependency.burst or tuple(_burst(rate) for rate in dependency.rate)
    bursts = given * len(dependency.rate) if len(given) == 1 else given
    pairs = zip(dependency.rate, bursts, strict=True)
    return Rules(
        name=dependency.name,
        buckets=tuple(Bucket(interval=_interval(rate), burst=burst) for rate, burst in pairs),
        concurrency=dependency.concurrency or 0,
        breaker=_breaker(dependency),
        payable=min(bursts, default=0),
        errors=int(dependency.errors * MICRO),
    )


def _interval(rate: Rate) -> int:
    # Rounded up: a sum of intervals must never come out short.
    return math.ceil(round(rate.interval * MICRO, 6))


def _burst(rate: Rate) -> int:
    # Jobs come a little late to the place they were given; a burst of 1 would turn away every
    # second one of them.
    return max(2, int(0.5 / rate.interval))


def _breaker(dependency: Dependency) -> BreakerRule | None:
    if (given := dependency.breaker) is None:
        return None
    return BreakerRule(
        ratio=int(given.ratio * MICRO),
        samples=given.samples,
        window=int(given.window * MICRO),
        pause=int(given.pause * MICRO),
    )


def check_cost(rules: Rules, cost: int) -> None:
    """Refuse a cost that no wait could ever pay for.

    :raises GuardError: when it is no whole number above 0, or more than a burst.
    """
    if isinstance(cost, bool) or not isinstance(cost, int) or cost < 1:
        raise GuardError(f"{rules.name}: a cost is a whole number above 0, not {cost!r}")
    most = rules.payable
    if cost > most > 0:
        raise GuardError(
            f"{rules.name}: cost {cost} is more than its burst, {most}, and no wait makes room for "
            f"it: ask for at most {most} at once, or give "
            f'CELERY_GUARD["dependencies"]["{rules.name}"] a "burst" of at least {cost}'
        )
