"""What is asked of a store of limits, and what it answers. Times are in microseconds."""

from __future__ import annotations

import dataclasses
import enum


class Verdict(enum.StrEnum):
    """How a call went, as far as its dependency is concerned."""

    FINE = "fine"
    """It answered, be it with a refusal of this very request."""
    FAILED = "failed"
    """It did not work, and not because of the request."""
    THROTTLED = "throttled"
    """It asked for patience."""
    UNCLEAR = "unclear"
    """Nobody can tell whose fault it was."""


class Breaking(enum.StrEnum):
    """How a breaker stands."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A wish to call.

    ``place`` names whoever comes back after a refusal, ``permit`` this very call; ``lease`` is
    how long the permit lasts unless renewed. A refusal keeps a place when that is at most
    ``within`` away.
    """

    place: str
    permit: str
    cost: int
    lease: int
    within: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Granted:
    """The call may be made now."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """Not now: come back in ``wait``, which is a place of one's own when ``kept``.

    ``reason`` is ``rate`` or ``breaker``.
    """

    wait: int
    reason: str
    kept: bool


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One rate as it is in force: seconds from call to call, how many at once, and how far ahead of
    the clock it is given out.
    """

    interval: float
    burst: int
    ahead: float = 0.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A dependency as it stands: for people, graphs and relays; a call asks for leave all the same.

    ``tokens`` that are left in the emptiest bucket (None without a rate), ``factor`` of the
    configured rate in force, ``paused`` microseconds; nobody may call for ``closed`` of them, by a
    pause or an open breaker. The five counters only ever grow.
    """

    name: str
    tokens: float | None
    permits: int
    factor: float
    paused: int
    breaker: Breaking
    granted: int
    refused: int
    throttled: int
    slowings: int
    openings: int
    closed: int = 0
    turns: tuple[Turn, ...] = ()
