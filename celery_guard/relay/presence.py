"""Which workers live, what they serve, and how many jobs they can run at once."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Iterable

from celery_guard import __version__
from celery_guard.conf import Window, guard_settings
from celery_guard.jobs.clock import DatabaseNow, in_seconds
from celery_guard.relay.models import WorkerPresence

WINDOW_UNKNOWN = 1000
"""The automatic window while no worker has reported."""
WINDOW_LEAST = 16
WINDOW_PER_SLOT = 4


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """A Celery worker as it reports itself.

    ``slots`` is the size of its pool, ``version`` the release of the guard that it runs.
    """

    name: str
    queues: tuple[str, ...]
    slots: int
    version: str = __version__


def silence() -> float:
    """Seconds without a report after which a worker no longer counts."""
    return max(5.0, 4 * guard_settings().sweep.every)


def report(using: str, owner: uuid.UUID, worker: Worker) -> None:
    """Say that ``worker`` lives; to be repeated well within :func:`silence`."""
    WorkerPresence.objects.using(using).update_or_create(
        owner=owner,
        defaults={
            "name": worker.name,
            "queues": list(worker.queues),
            "slots": worker.slots,
            "version": worker.version,
            "seen_at": DatabaseNow(),
        },
    )


def leave(using: str, owner: uuid.UUID) -> None:
    """Say that a worker has ended."""
    WorkerPresence.objects.using(using).filter(owner=owner).delete()


def forget_silent(using: str) -> int:
    """Remove workers that have not reported for an hour; return how many."""
    rows = WorkerPresence.objects.using(using).filter(seen_at__lt=in_seconds(-3600))
    return rows.delete()[0]


def live_workers(using: str) -> list[Worker]:
    """The workers that reported within :func:`silence`."""
    rows = WorkerPresence.objects.using(using).filter(seen_at__gt=in_seconds(-silence()))
    return [
        Worker(name=name, queues=tuple(queues), slots=slots, version=version)
        for name, queues, slots, version in rows.values_list("name", "queues", "slots", "version")
    ]


def slots_of(queue: str, workers: Iterable[Worker]) -> int | None:
    """How many jobs of ``queue`` can run at once; None when no worker has reported it."""
    slots = [worker.slots for worker in workers if queue in worker.queues]
    return sum(slots) if slots else None


def window_of(lane: str, workers: Iterable[Worker]) -> int | None:
    """How many unfinished jobs of ``lane`` the broker may hold; None for all."""
    settings = guard_settings().lane(lane)
    window: Window = settings.window
    if window != "auto":
        return window
    slots = slots_of(settings.queue, workers)
    if slots is None:
        return WINDOW_UNKNOWN
    return max(WINDOW_LEAST, WINDOW_PER_SLOT * slots)
