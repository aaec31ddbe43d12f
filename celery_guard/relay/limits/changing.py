"""Set other limits for a dependency while the site runs, and end what was set."""

from __future__ import annotations

from collections.abc import Collection

from django.db import transaction

from celery_guard.conf import guard_settings
from celery_guard.enqueue.steering.terms import WORDS, missing, time_faults, too_long
from celery_guard.events import emit
from celery_guard.jobs.clock import DatabaseNow, in_seconds
from celery_guard.relay.limits.changes import Change, change_of, forget
from celery_guard.relay.limits.models import LimitChange

LONGEST = 30 * 86400.0
"""Longest time that limits set at run time count, in seconds: the last word is the settings'."""
_LENGTHS = {"dependency": 64, "rate": 200, "burst": 100, **WORDS}
MOST_CONCURRENCY = 1_000_000


def set_limits(
    using: str,
    *,
    dependency: str,
    reason: str,
    author: str,
    seconds: float,
    rate: str = "",
    burst: str = "",
    concurrency: int | None = None,
) -> LimitChange:
    """Let other limits count for ``dependency``, from now for ``seconds``.

    They take the place of what was set before, all of it: what is not named is as in the settings.

    :param rate: as in the settings, several with commas: ``"10/s, 5000/h"``; ``burst`` likewise.
    :raises ValueError: naming every fault; nothing was written.
    """
    row = LimitChange(
        dependency=dependency.strip(),
        rate=rate.strip(),
        burst=burst.strip(),
        concurrency=concurrency,
        reason=reason.strip(),
        author=author.strip(),
    )
    if faults := _faults(row, seconds):
        raise ValueError("; ".join(faults))
    with transaction.atomic(using=using):
        LimitChange.objects.using(using).filter(dependency=row.dependency).end(row.author)
        row.created_at, row.expires_at = DatabaseNow(), in_seconds(seconds)
        row.save(using=using, force_insert=True)
    row.refresh_from_db(using=using)
    forget()
    emit(
        "relay.limits_set",
        dependency=row.dependency,
        limits=row.limits,
        by=row.author,
        until=str(row.expires_at),
    )
    return row


def end_limits(using: str, dependencies: Collection[str], *, by: str) -> list[str]:
    """End what is set for ``dependencies``; return those for which something was."""
    ended = [
        name
        for name in sorted(dependencies)
        if LimitChange.objects.using(using).filter(dependency=name).end(by)
    ]
    forget()
    for name in ended:
        emit("relay.limits_ended", dependency=name, by=by)
    return ended


def _faults(row: LimitChange, seconds: float) -> list[str]:
    words = {name: str(getattr(row, name)) for name in _LENGTHS}
    faults = [*missing(words, {"dependency": 64, **WORDS}), *too_long(words, _LENGTHS)]
    return [*faults, *limit_faults(row), *time_faults(seconds, LONGEST)]


def limit_faults(row: LimitChange) -> list[str]:
    """Why the limits that ``row`` names can't be its dependency's."""
    known = guard_settings().dependencies.get(row.dependency)
    faults = [] if known or not row.dependency else [f"there is no dependency {row.dependency!r}"]
    if not (row.rate or row.burst or row.concurrency):
        faults.append("name a rate, a burst or a concurrency above 0")
    if row.concurrency is not None and not 0 < row.concurrency <= MOST_CONCURRENCY:
        faults.append(f"concurrency must be from 1 to {MOST_CONCURRENCY}, not {row.concurrency}")
    try:
        change = change_of(row)
    except ValueError:
        faults.append('a rate is like "50/s", "0.5/s", "100/m"; a burst is a whole number above 0')
        return faults
    return faults + _burst_faults(change, len(change.rate or (known.rate if known else ())))


def _burst_faults(change: Change, rates: int) -> list[str]:
    if any(burst < 1 for burst in change.burst):
        return ["a burst is a whole number above 0"]
    if change.burst and not rates:
        return ["a burst needs a rate"]
    if len(change.burst) > 1 and len(change.burst) != rates:
        return ["name one burst, or one for each rate"]
    return []
