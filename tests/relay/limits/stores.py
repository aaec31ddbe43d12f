"""Both stores of limits, and short words for what tests ask of them."""

import itertools
import os
from typing import Any

from celery_guard.conf import read_settings
from celery_guard.relay.limits.answers import Ask, Granted, Refused, Verdict
from celery_guard.relay.limits.database import DatabaseLimits
from celery_guard.relay.limits.redis_form import RedisLimits
from celery_guard.relay.limits.rules import MICRO, Rules, _rules
from celery_guard.relay.limits.store import Limits
from tests.project.celery import app

FORMS = ("redis", "database")
_names = itertools.count()


def store(form: str) -> Limits:
    """The store of that form, on this test's servers."""
    if form == "database":
        return DatabaseLimits("default")
    return RedisLimits(os.environ["REDIS_URL"], app)


def rules(**given: Any) -> Rules:
    """The rules that settings like these make, under a name of their own."""
    name = f"dependency-{next(_names)}"
    settings, faults = read_settings({"dependencies": {name: given}})
    assert faults == []
    return _rules(settings.dependencies[name])


def ask(
    place: str, permit: str = "", *, cost: int = 1, lease: float = 60, within: float = 600
) -> Ask:
    """A wish to call; the permit is named after the place unless it has a name."""
    return Ask(
        place=place,
        permit=permit or f"{place}/1",
        cost=cost,
        lease=int(lease * MICRO),
        within=int(within * MICRO),
    )


class Desk:
    """One dependency in one store."""

    def __init__(self, limits: Limits, rules: Rules) -> None:
        self.limits = limits
        self.rules = rules

    def take(self, place: str, permit: str = "", **how: Any) -> Granted | Refused:
        """Ask once."""
        return self.limits.take(self.rules, ask(place, permit, **how))

    def granted(self, place: str, permit: str = "", **how: Any) -> bool:
        """Ask once; whether it may call."""
        return isinstance(self.take(place, permit, **how), Granted)

    def refused(self, place: str, permit: str = "", **how: Any) -> Refused:
        """Ask once, and be refused."""
        answer = self.take(place, permit, **how)
        assert isinstance(answer, Refused)
        return answer

    def finish(self, permit: str, verdict: Verdict = Verdict.FINE, pause: float = 0) -> None:
        """Say how a call went."""
        self.limits.finish(self.rules, permit, verdict, pause, None)

    def read(self) -> Any:
        """How the dependency stands."""
        return self.limits.read([self.rules])[0]
