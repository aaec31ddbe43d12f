"""What was set at run time for the limits of dependencies, as one process knows it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType

from celery_guard.conf import Dependency
from celery_guard.enqueue.steering.known import Known
from celery_guard.rate import Rate, parse_rate
from celery_guard.relay.limits.models import LimitChange


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Other limits than the settings'; what is empty stays as it is there."""

    rate: tuple[Rate, ...] = ()
    burst: tuple[int, ...] = ()
    concurrency: int | None = None

    def applied_to(self, dependency: Dependency) -> Dependency:
        """``dependency`` under this change."""
        rate = self.rate or dependency.rate
        return dataclasses.replace(
            dependency,
            rate=rate,
            burst=_fitting(self.burst, rate) or _fitting(dependency.burst, rate),
            concurrency=self.concurrency or dependency.concurrency,
        )


def _fitting(burst: tuple[int, ...], rate: tuple[Rate, ...]) -> tuple[int, ...]:
    # The settings may have another number of rates by now than when the change was made.
    return burst if len(burst) in (1, len(rate)) else ()


Changes = Mapping[str, Change]


def changes(using: str) -> Changes:
    """What is in force in the ledger on ``using``, by dependency; at most a second old."""
    return _known.now(using)


def forget() -> None:
    """Read anew at the next look."""
    _known.forget()


def change_of(row: LimitChange) -> Change:
    """What ``row`` says.

    :raises ValueError: when a rate or burst in it is none.
    """
    return Change(
        rate=tuple(parse_rate(text) for text in _listed(row.rate)),
        burst=tuple(int(text) for text in _listed(row.burst)),
        concurrency=row.concurrency,
    )


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _read(using: str) -> Changes:
    rows = LimitChange.objects.using(using).in_force().order_by("pk")
    return MappingProxyType({row.dependency: change_of(row) for row in rows})


_known = Known[Changes](_read, nothing=MappingProxyType({}), blind="relay.changes_blind")
