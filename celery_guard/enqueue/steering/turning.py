"""Turn a switch on, and end it."""

from __future__ import annotations

from collections.abc import Collection

from celery_guard.enqueue.steering.models import Action, Switch
from celery_guard.enqueue.steering.reading import MOST, forget
from celery_guard.events import emit
from celery_guard.jobs.clock import DatabaseNow, in_seconds

LONGEST = 7 * 86400.0
"""Longest time of one switch, in seconds: what is forgotten must end by itself."""
_LENGTHS = {"lane": 64, "task": 255, "tenant": 255, "reason": 500, "author": 150}


def turn_on(
    using: str,
    *,
    action: str,
    reason: str,
    author: str,
    seconds: float,
    lane: str = "",
    task: str = "",
    tenant: str = "",
) -> Switch:
    """A new switch, in force from now for ``seconds`` by the database's clock.

    :param lane: with ``task`` and ``tenant``: which jobs; empty matches any.
    :raises ValueError: naming every fault; nothing was written.
    """
    words = {"lane": lane, "task": task, "tenant": tenant}
    words |= {"reason": reason.strip(), "author": author.strip()}
    if faults := _faults(using, action, seconds, words):
        raise ValueError("; ".join(faults))
    switch = Switch.objects.using(using).create(
        action=action, created_at=DatabaseNow(), expires_at=in_seconds(seconds), **words
    )
    switch.refresh_from_db(using=using)
    forget()
    emit("enqueue.switch_on", switch=switch.pk, action=action, scope=switch.scope, by=author)
    return switch


def _faults(using: str, action: str, seconds: float, words: dict[str, str]) -> list[str]:
    faults = [f"{name} is needed" for name in ("reason", "author") if not words[name]]
    faults += [
        f"{name} may have {most} characters, not {len(words[name])}"
        for name, most in _LENGTHS.items()
        if len(words[name]) > most
    ]
    if action not in Action.values:
        faults.append(f"action must be one of {', '.join(Action.values)}, not {action!r}")
    if not 0 < seconds <= LONGEST:
        faults.append(f"it must last more than 0 and at most {LONGEST:.0f} seconds (7 days)")
    if (
        Switch.objects.using(using).filter(ended_at=None, expires_at__gt=DatabaseNow()).count()
        >= MOST
    ):
        faults.append(f"{MOST} switches are in force; end some first")
    return faults


def turn_off(using: str, ids: Collection[int], *, by: str) -> list[int]:
    """End those of ``ids`` that are in force; return them. What they held runs within a second."""
    ended = []
    for pk in sorted(ids):
        # Waits for whoever is just putting a job aside under it: after this nobody does.
        rows = Switch.objects.using(using).filter(
            pk=pk, ended_at=None, expires_at__gt=DatabaseNow()
        )
        if rows.update(ended_at=DatabaseNow(), ended_by=by[:150]):
            ended.append(pk)
            emit("enqueue.switch_off", switch=pk, by=by)
    forget()
    return ended
