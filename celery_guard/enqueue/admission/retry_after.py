"""When to ask again: about when a fifth of what is too much will have gone, never all at once.

``clamp(excess / max(completions - arrivals, completions / 10), 1 s, cap)``, spread upward by up to
30 % and still within the cap, so that those refused together do not come back together.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

from celery_guard.conf import Lane, guard_settings
from celery_guard.enqueue.admission.measured import Measured
from celery_guard.enqueue.admission.pressure import Strain

KEPT = 0.8
"""Share of a limit that a lane should have fallen to when the next one asks."""
UNKNOWN = 5.0
"""Seconds to say while nothing is known of the lane's rates."""
SPREAD = 1.3


def retry_after(lane: Lane, found: Measured | None, reason: str) -> float:
    """Seconds after which a request that ``reason`` refused may find room."""
    return spread(_fall(lane, found, reason, 1.0))


def of_strain(strain: Strain, lanes: Mapping[str, Measured]) -> float:
    """The same where ``strain`` closes a lane: it is another lane's to fall, if that is in the way.

    And what was closed stays closed for two snapshots.
    """
    lane = strain.of
    fall = _fall(lane, lanes.get(lane.name), strain.why, strain.share)
    return spread(max(fall, 2 * guard_settings().snapshot.every))


def _fall(lane: Lane, found: Measured | None, reason: str, share: float) -> float:
    if found is None or found.stale or found.completions is None:
        return UNKNOWN
    drain = max(found.completions - found.arrivals, found.completions / 10)
    return _excess(lane, found, reason, share) / drain


def _excess(lane: Lane, found: Measured, reason: str, share: float) -> float:
    limits, completions = lane.admission, found.completions or 0.0
    if reason == "depth" and limits.depth is not None:
        most = share * limits.depth
        return max(found.ready, most) - KEPT * most
    if reason == "wait" and limits.wait is not None and found.wait is not None:
        return (found.wait - KEPT * share * limits.wait) * completions
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
