"""Turns at a lane that has been full: whoever comes back when told finds a place.

Where twice as many ask as there is room for, those who come anew take each place as it opens, and
one who waited as told has no better chance than they. So while a lane is full, a twentieth of its
depth is left to those whose turn it is, and ``Retry-After`` names a moment in the caller's own turn.
The turn goes by what is asked for and by the database's clock, so nothing is kept for anybody:
whoever never comes back costs nothing.
"""

from __future__ import annotations

import random
import time
import zlib
from datetime import datetime

from celery_guard.conf import guard_settings

TURNS = 4
"""So many take turns: up to four times as many as there is room for are told a good moment."""
LASTS = 2.0
"""Seconds of one turn: ``Retry-After`` has whole seconds, and some are lost on the way."""
SHARE = 20
"""One place in so many is left to those whose turn it is."""
REMEMBERED = 30.0
"""Seconds for which a process that was refused a place knows that the lane is full."""

_full: dict[tuple[str, str], float] = {}


def turn_of(name: str) -> int:
    """Whose turn ``name`` waits for: the same for the same request, in every process."""
    return zlib.crc32(name.encode()) % TURNS


def kept(using: str, scope: str, most: int | None) -> int:
    """How many places of ``scope`` are left to those whose turn it is: none while it is not full."""
    full = _full.get((using, scope), 0.0) > time.monotonic()
    return (most or 0) // SHARE if full else 0


def note_full(using: str, scope: str) -> None:
    """Somebody was just refused a place in ``scope``."""
    _full[using, scope] = time.monotonic() + REMEMBERED


def forget() -> None:
    """No lane is known to be full."""
    _full.clear()


def is_turn(turn: int, now: datetime) -> bool:
    """Whether it is the turn of ``turn``."""
    return int(now.timestamp() // LASTS) % TURNS == turn


def in_turn(seconds: float, turn: int, now: datetime) -> float:
    """The first moment of ``turn`` that is at least ``seconds`` from ``now``, in seconds from it.

    A little later by chance, and within the cap: then it may be earlier than ``seconds``.
    """
    round_ = LASTS * TURNS
    begins = (turn * LASTS - now.timestamp() - seconds) % round_ + seconds
    # Whole seconds are rounded up, and must still end within the turn.
    at = begins + random.uniform(0.0, LASTS / 2)
    cap = guard_settings().admission.retry_after
    while at > cap and at > round_ + 1:
        at -= round_
    return min(at, max(cap, 1.0))
