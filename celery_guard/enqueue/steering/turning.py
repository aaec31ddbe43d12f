"""Turn a switch on, and end it."""

from __future__ import annotations

from collections.abc import Collection

from celery_guard.conf import guard_settings
from celery_guard.enqueue.admission.limits import below
from celery_guard.enqueue.steering.models import Action, Switch
from celery_guard.enqueue.steering.reading import MOST, forget
from celery_guard.enqueue.steering.terms import WORDS, missing, time_faults, too_long
from celery_guard.events import emit
from celery_guard.jobs.clock import DatabaseNow, in_seconds

LONGEST = 7 * 86400.0
"""Longest time of one switch, in seconds: what is forgotten must end by itself."""
_LENGTHS = {"lane": 64, "task": 255, "tenant": 255, **WORDS}


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
    switch: Switch = Switch.objects.using(using).create(
        action=action, created_at=DatabaseNow(), expires_at=in_seconds(seconds), **words
    )
    switch.refresh_from_db(using=using)
    forget()
    emit("enqueue.switch_on", switch=switch.pk, action=action, scope=switch.scope, by=author)
    return switch


def _faults(using: str, action: str, seconds: float, words: dict[str, str]) -> list[str]:
    faults = [*missing(words, WORDS), *too_long(words, _LENGTHS)]
    if action not in Action.values:
        faults.append(f"action must be one of {', '.join(Action.values)}, not {action!r}")
    lane = guard_settings().lane(words["lane"])
    if action == Action.DEMOTE and lane.name and below(guard_settings(), lane) is None:
        faults.append(f"there is no lane below {lane.name!r}")
    faults += time_faults(seconds, LONGEST)
    if Switch.objects.using(using).in_force().count() >= MOST:
        faults.append(f"{MOST} switches are in force; end some first")
    return faults


def turn_off(using: str, ids: Collection[int], *, by: str) -> list[int]:
    """End those of ``ids`` that are in force; return them. What they held runs within a second."""
    ended = []
    for pk in sorted(ids):
        # Waits for whoever is just putting a job aside under it: after this nobody does.
        if Switch.objects.using(using).filter(pk=pk).end(by):
            ended.append(pk)
            emit("enqueue.switch_off", switch=pk, by=by)
    forget()
    return ended
