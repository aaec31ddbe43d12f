"""When a message counts as lost: never by its age alone.

Two things are evidence. A job sent *later* to the same queue was claimed a grace ago, so this one
was passed over. Or the queue holds nothing while its workers have had free slots for a grace, so
whatever was in it is neither waiting nor running. A long queue, slow workers, workers that are
down: no evidence, nothing is sent again.
"""

from __future__ import annotations

import dataclasses
from datetime import datetime, timedelta

TRUST_QUEUE = 10
"""Graces for which a queue that still holds every unclaimed message overrules the first sign:
messages of different priority overtake each other. Not for ever, since strangers' messages
in the queue would hide a loss."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Flight:
    """What the ledger says of one lane's jobs in the broker.

    ``waiting`` are sent and not claimed, the first at ``oldest``; ``newest_claimed`` is the
    latest sending time of a job that runs now.
    """

    waiting: int = 0
    oldest: datetime | None = None
    running: int = 0
    newest_claimed: datetime | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The columns of a lane's row that the leader's resend reads."""

    probe_sent_at: datetime | None = None
    probe_at: datetime | None = None
    proven_sent_at: datetime | None = None
    idle_since: datetime | None = None


def judge(
    old: Evidence,
    flight: Flight,
    *,
    now: datetime,
    grace: timedelta,
    ready: int | None,
    free: bool,
) -> Evidence:
    """The evidence at ``now``, by the database's clock.

    :param ready: messages in the queue; None when the broker couldn't be asked.
    :param free: whether the lane's workers have free slots.
    """
    if not flight.waiting or ready is None:
        return dataclasses.replace(old, proven_sent_at=None, idle_since=None)
    idle_since = (old.idle_since or now) if ready == 0 and free else None
    old = dataclasses.replace(old, idle_since=idle_since)
    if ready >= flight.waiting and not _overdue(flight, now, grace):
        return dataclasses.replace(old, proven_sent_at=None)
    return _proven(_probe(old, flight, now), flight, now, grace)


def _overdue(flight: Flight, now: datetime, grace: timedelta) -> bool:
    return flight.oldest is not None and flight.oldest <= now - TRUST_QUEUE * grace


def _probe(old: Evidence, flight: Flight, now: datetime) -> Evidence:
    if old.probe_sent_at is not None or flight.newest_claimed is None:
        return old
    return dataclasses.replace(old, probe_sent_at=flight.newest_claimed, probe_at=now)


def _proven(old: Evidence, flight: Flight, now: datetime, grace: timedelta) -> Evidence:
    if old.probe_sent_at is None or old.probe_at is None or old.probe_at > now - grace:
        return old
    proven = max(old.proven_sent_at or old.probe_sent_at, old.probe_sent_at)
    fresh = flight.newest_claimed
    return Evidence(
        probe_sent_at=fresh,
        probe_at=now if fresh else None,
        proven_sent_at=proven,
        idle_since=old.idle_since,
    )
