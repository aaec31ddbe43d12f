"""Where the limits are kept, and what happens when that place does not answer.

Then nobody calls: no limit is ever lifted silently, and the database form does not step in, since
two stores would each grant the whole rate. A process that was not answered asks no more for a
moment, so that a frozen Redis costs a worker one time-out and not one for every job.
"""

from __future__ import annotations

import logging
import os
import random
import time
from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from typing import Protocol, TypeVar

from celery_guard.conf import guard_settings
from celery_guard.errors import LimitsAway
from celery_guard.events import emit
from celery_guard.redis import redis_url
from celery_guard.relay.breaker import Breaker
from celery_guard.relay.broker_app import load_app
from celery_guard.relay.limits.answers import Ask, Granted, Reading, Refused, Verdict
from celery_guard.relay.limits.database import DatabaseLimits
from celery_guard.relay.limits.redis_form import in_this_process, redis_limits
from celery_guard.relay.limits.rules import Rules

AWAY = (1.0, 5.0)
"""Seconds, drawn between these, until a job asks again that was not answered."""

T = TypeVar("T")


class Limits(Protocol):
    """A store of limits; each question is one atomic step on the store's clock."""

    def take(self, rules: Rules, ask: Ask) -> Granted | Refused:
        """Take what a call needs, or be told when to come back."""

    def finish(
        self, rules: Rules, permit: str, verdict: Verdict, pause: float, instant: datetime | None
    ) -> None:
        """Give a permit back and say how the call went."""

    def renew(self, rules: Rules, permits: Collection[str], lease: float) -> None:
        """Prolong permits."""

    def read(self, wanted: Sequence[Rules]) -> list[Reading]:
        """How dependencies stand."""


def limits() -> Limits:
    """The one store of this site's limits, whatever database a task's ledger is on."""
    settings, app = guard_settings(), load_app()
    url = redis_url(app) if settings.limits != "database" else ""
    return redis_limits(url, app) if url else DatabaseLimits(settings.using)


class _Patience:
    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        self._breaker = Breaker(first=0.5)
        self._until = 0.0

    def ask(self, question: Callable[[Limits], T]) -> T:
        if time.monotonic() < self._until:
            raise LimitsAway(_SAID, random.uniform(*AWAY))
        try:
            answer = question(limits())
        except LimitsAway as error:
            self._until = time.monotonic() + self._breaker.failed()
            emit("relay.limits_away", logging.WARNING, why=str(error))
            raise LimitsAway(str(error), random.uniform(*AWAY)) from error
        self._breaker.worked()
        return answer


_SAID = "the store of the limits has just not answered"
_patience = _Patience()
os.register_at_fork(after_in_child=_patience.forget)


def take(rules: Rules, ask: Ask) -> Granted | Refused:
    """Take what a call needs, or be told when to come back.

    :raises LimitsAway: when nobody answers; nothing was taken as far as anybody knows.
    """
    return _patience.ask(lambda kept: kept.take(rules, ask))


def finish(
    rules: Rules,
    permit: str,
    verdict: Verdict,
    pause: float = 0.0,
    instant: datetime | None = None,
) -> bool:
    """Give a permit back and say how the call went; False when nobody answers.

    The call has been made, so nothing may fail for that: the permit ends with its lease.
    """

    return _said(lambda kept: kept.finish(rules, permit, verdict, pause, instant))


def renew(rules: Rules, permits: Collection[str], lease: float) -> bool:
    """Prolong permits by ``lease`` seconds from now; False when nobody answers."""
    return _said(lambda kept: kept.renew(rules, permits, lease))


def settle() -> None:
    """See to it that this process' last ends have arrived, of which it has heard nothing yet.

    Costs nothing where it has; else nobody would look before the next job, and a permit be held so long.
    """
    for kept in in_this_process():
        try:
            kept.settle()
        except LimitsAway as error:
            # The permit ends with its lease.
            emit("relay.limits_away", logging.WARNING, why=str(error))


def read(wanted: Sequence[Rules]) -> list[Reading]:
    """How dependencies stand.

    :raises LimitsAway: when nobody answers.
    """
    return limits().read(wanted)


def look(wanted: Sequence[Rules]) -> list[Reading]:
    """The same for whoever asks often, and must not wait for a store that does not answer.

    :raises LimitsAway: when nobody answers, or has just not answered.
    """
    return _patience.ask(lambda kept: kept.read(wanted))


def _said(question: Callable[[Limits], None]) -> bool:
    try:
        _patience.ask(question)
    except LimitsAway:
        return False
    return True
