"""One worker's part of what its lanes need, for the pool that is grown and shrunk by it.

The advice of a lane is in workers of ``scale.concurrency`` slots. Its slots are dealt out evenly
to the living workers that serve the lane, the odd ones by the order of their names; every worker
comes to the same answer from the same rows, without talking to the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from celery_guard.conf import guard_settings
from celery_guard.relay.presence import Worker, live_workers
from celery_guard.relay.upkeep import advise_with
from celery_guard.watch.lanes import LaneView, stale_after
from celery_guard.watch.prometheus import collector


@advise_with
def share(using: str, worker: Worker) -> tuple[int, float] | None:
    """The slots that ``worker`` should have, and for how many seconds that counts.

    None when one of its lanes was not measured lately: then nobody knows what it should have. Only
    the upkeep of the settings' ledger says it, for all ledgers together.
    """
    if using != guard_settings().using:
        return None
    served = {lane.name for lane in guard_settings().lanes.values() if lane.queue in worker.queues}
    lanes = [lane for lane in collector().read() or () if lane.name in served]
    if not served or len(lanes) < len(served):
        return None
    if any(lane.stale or lane.desired_workers is None for lane in lanes):
        return None
    counts = stale_after() - max(lane.snapshot_age for lane in lanes)
    slots = share_of(worker, lanes, live_workers(using))
    return None if slots is None else (slots, counts)


def share_of(worker: Worker, lanes: Sequence[LaneView], workers: Iterable[Worker]) -> int | None:
    """``worker``'s part of the slots of ``lanes``; None while ``workers`` don't name it."""
    slots, alive = 0, list(workers)
    for lane in lanes:
        names = sorted({other.name for other in alive if lane.queue in other.queues})
        if worker.name not in names:
            return None
        whole = (lane.desired_workers or 0) * guard_settings().scale.concurrency
        each, odd = divmod(whole, len(names))
        slots += each + (names.index(worker.name) < odd)
    return slots
