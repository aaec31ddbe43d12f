"""How fast jobs come and go, from two measurements of a lane.

Nothing counts arrivals: what came is what went plus what is there more than before. That holds
for new jobs, jobs whose time has come, replays and adopted messages alike, costs the request
nothing, and counts a retry as neither. Messages of unguarded tasks count while they wait.
"""

from __future__ import annotations

import dataclasses
import math
from datetime import datetime

SMOOTHING = 30.0
"""The averages forget with this time constant, in seconds."""


def smooth(before: float, now: float, passed: float) -> float:
    """The moving average after ``passed`` more seconds, at whose end it is ``now``."""
    return before - math.expm1(-max(0.0, passed) / SMOOTHING) * (now - before)


LEARNING = 50.0
"""The service rate forgets with this many jobs."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """How many jobs a busy slot ends a second; None until one has ended.

    ``busy`` is the slots' busy time, in seconds, since a job ended last.
    """

    rate: float | None = None
    busy: float = 0.0


def learn(before: Service, *, busy: float, went: int) -> Service:
    """``before`` after ``busy`` more seconds of busy slots, in which ``went`` jobs ended.

    Only the end of a job teaches anything, and by no more than tenfold: while nothing ends, a
    provider may be away, and that is no reason to start more workers.
    """
    time = before.busy + busy
    if not went:
        return dataclasses.replace(before, busy=time)
    if before.rate is None:
        return Service(rate=went / time if time else None)
    rate = went / time if time else before.rate
    seen = min(max(rate, before.rate / 10), before.rate * 10)
    weight = -math.expm1(-went / LEARNING)
    return Service(rate=before.rate * (seen / before.rate) ** weight)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """A lane at one moment: jobs in it, jobs that ever left it, and the rates so far, per second.

    ``floor``: the count of ``available`` jobs stopped at its bound.
    """

    at: datetime
    available: int
    floor: bool
    gone: int
    arrivals: float = 0.0
    completions: float = 0.0


def advance(before: Flow, now: Flow) -> Flow:
    """``now`` with its rates: exponential moving averages over the time since ``before``.

    Where either count stopped at its bound, the difference is not known and the arrivals are
    "at least". The averages are kept unclipped: attempts report in batches, and a lane that
    empties before its completions are told must come out even afterwards.
    """
    passed = (now.at - before.at).total_seconds()
    if passed <= 0:
        return dataclasses.replace(now, arrivals=before.arrivals, completions=before.completions)
    went = max(0, now.gone - before.gone)
    more = 0 if now.floor or before.floor else now.available - before.available
    weight = -math.expm1(-passed / SMOOTHING)
    return dataclasses.replace(
        now,
        arrivals=before.arrivals + weight * ((went + more) / passed - before.arrivals),
        completions=before.completions + weight * (went / passed - before.completions),
    )
