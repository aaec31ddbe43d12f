"""What the leader of a lane does about switches that ended before their time: free what they held."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from celery_guard.enqueue.steering.reading import switches
from celery_guard.events import emit
from celery_guard.jobs.pausing import Switched, bring_back

STEPS = 10
"""Most steps of one look, so that a long backlog doesn't hold up the other lanes."""


def is_steered(using: str, lane: str) -> bool:
    """Whether a hold that touches ``lane`` is in force, as far as this process knows."""
    return any(hold.touches(lane) for hold in switches(using).holds)


class Freeing:
    """The ended holds of one ledger, as one relay has dealt with them. A hint only."""

    def __init__(self, using: str) -> None:
        self._using = using
        self._done: dict[str, set[int]] = {}

    def free(self, lanes: Iterable[str]) -> set[str]:
        """Make due what ended holds kept in ``lanes``; return the lanes that have work now."""
        if not (ended := switches(self._using).ended):
            return set()
        return {lane for lane in lanes if self._free(lane, ended)}

    def _free(self, lane: str, ended: Iterable[Switched]) -> bool:
        # A switch that was seen as ended puts nothing aside any more, so once is enough.
        done = self._done.get(lane, set())
        touching = {switch.id: switch.until for switch in ended if switch.touches(lane)}
        self._done[lane] = done & touching.keys()
        if not (new := touching.keys() - done):
            return False
        count, more = self._back(lane, [touching[pk] for pk in new])
        if not more:
            self._done[lane] |= new
        if count:
            emit("relay.resumed", lane=lane, count=count)
        return bool(count)

    def _back(self, lane: str, held: list[datetime]) -> tuple[int, bool]:
        count = 0
        for _ in range(STEPS):
            moved, more = bring_back(self._using, lane, held)
            count += moved
            if not (moved and more):
                return count, more
        return count, True
