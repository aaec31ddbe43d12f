"""When to ask again: about when a fifth of what is too much will have gone, never all at once.

``clamp(excess / max(completions - arrivals, completions / 10), 1 s, cap)``, spread upward by up to
30 % and still within the cap, so that those refused together do not come back together.
"""

from __future__ import annotations

import random

from celery_guard.conf import Lane, guard_settings
from celery_guard.enqueue.admission.measured import Measured

KEPT = 0.8
"""Share of a limit that a lane should have fallen to when the next one asks."""
UNKNOWN = 5.0
"""Seconds to say while nothing is known of the lane's rates."""
SPREAD = 1.3


def retry_after(lane: Lane, found: Measured | None, reason: str) -> float:
    """Seconds after which a request that ``reason`` refused may find room."""
    if found is None or found.stale or found.completions is None:
        return spread(UNKNOWN)
    drain = max(found.completions - found.arrivals, found.completions / 10)
    return spread(_excess(lane, found, reason) / drain)


def _excess(lane: Lane, found: Measured, reason: str) -> float:
    limits, completions = lane.admission, found.completions or 0.0
    if reason == "depth" and limits.depth is not None:
        return max(found.ready, limits.depth) - KEPT * limits.depth
    if reason == "wait" and limits.wait is not None and found.wait is not None:
        return (found.wait - KEPT * limits.wait) * completions
    return (1 - KEPT) * found.ready


def of_tenant(waiting: int | None, lane: Measured | None) -> float:
    """The same for a tenant that has ``waiting`` jobs, if its share of the lane is served as such."""
    if waiting is None or lane is None or lane.stale or lane.completions is None:
        return spread(UNKNOWN)
    share = min(1.0, waiting / max(1, lane.ready))
    return spread((1 - KEPT) * waiting / (lane.completions * share))


def spread(seconds: float) -> float:
    """``seconds`` within a second and the cap, and a little later by chance."""
    cap = guard_settings().admission.retry_after
    base = max(1.0, min(seconds, cap / SPREAD))
    return min(max(cap, 1.0), base * random.uniform(1.0, SPREAD))
