"""Coalescing: of many requests for the same thing, only the latest state matters.

The decorators only mark the function, below ``@guarded_task(...)``; the task's declaration reads
the mark and tells all faults at once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from django.core.exceptions import ImproperlyConfigured

from celery_guard.enqueue import call

F = TypeVar("F", bound=Callable[..., Any])

MARK = "guard_coalesce"
LONGEST = 10
"""Waits for which a debounced request can be put off, where nothing else is said."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Coalescing:
    """How the requests of a task come together; times in seconds.

    ``key`` is a template or callable, like the task's key. ``every`` is the least time from the end
    of a run to the next. ``wait`` is how long a request waits for another one, ``max_wait`` how
    long it can be put off by others in all.
    """

    key: str | Callable[..., Any]
    every: float | None = None
    wait: float | None = None
    max_wait: float | None = None

    @property
    def delay(self) -> float:
        """Seconds until a lone request is due."""
        return self.wait or 0.0

    @property
    def max_delay(self) -> float | None:
        """What the ledger keeps: how long it may be put off, or the period, as a time before now."""
        if self.wait is not None:
            return LONGEST * self.wait if self.max_wait is None else self.max_wait
        return None if self.every is None else -self.every


def coalesce(key: str | Callable[..., Any], *, every: float | None = None) -> Callable[[F], F]:
    """Let waiting requests of one key become one run, which sees the latest state.

    While a job of the key is sent or runs, later requests wait; then one more run answers all of
    them. So after the last request a run starts that sees it, and never two run at once.

    :param key: names what the requests are about: a template over the arguments
        (``"product:{product_id}"``) or a callable that takes them.
    :param every: run at most once in so many seconds, counted from the end of a run. The first
        request runs at once, the last one always runs.
    :raises ImproperlyConfigured: at the task's definition, with its other faults.
    """
    return _marked(Coalescing(key=key, every=every))


def debounce(
    key: str | Callable[..., Any], *, wait: float, max_wait: float | None = None
) -> Callable[[F], F]:
    """Like :func:`coalesce`, but a run waits until the requests of its key have been quiet.

    :param wait: seconds without a new request after which the key's job is due.
    :param max_wait: most seconds that a request waits while new ones come; ten times ``wait``
        where it is left out.
    :raises ImproperlyConfigured: at the task's definition, with its other faults.
    """
    return _marked(Coalescing(key=key, wait=wait, max_wait=max_wait))


def _marked(rule: Coalescing) -> Callable[[F], F]:
    def mark(function: F) -> F:
        if hasattr(function, "guard") or hasattr(function, "apply_async"):
            raise ImproperlyConfigured(
                "coalesce and debounce stand below @guarded_task(...), next to the function"
            )
        if hasattr(function, MARK):
            raise ImproperlyConfigured(
                f"{function.__qualname__}: coalesce or debounce is given twice"
            )
        setattr(function, MARK, rule)
        return function

    return mark


def mark_of(function: Callable[..., Any]) -> dict[str, Coalescing]:
    """The option that a function's decorator set, if there is one."""
    rule = getattr(function, MARK, None)
    return {} if rule is None else {"coalesce": rule}


def faults_of(rule: Coalescing) -> Iterator[str]:
    """What is wrong with the times of ``rule``."""
    for name in ("every", "wait", "max_wait"):
        value = getattr(rule, name)
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if value is not None and not (number and 0 < value < float("inf")):
            yield f"{name} must be a number of seconds above 0, not {value!r}"
            return
    for name, seconds in (("every", rule.every), ("max_wait", rule.max_delay)):
        if seconds is not None and seconds > call.LONGEST:
            yield f"{name} ({seconds:g} seconds) is longer than a hundred years"
            return
    if rule.max_wait is not None and rule.wait is not None and rule.max_wait < rule.wait:
        yield f"max_wait ({rule.max_wait}) is shorter than wait ({rule.wait})"
