"""What waits in the broker's queues, of guarded tasks and others: a cross-check of the lanes.

The ledger knows its own jobs better than any broker. Of work that is not guarded only the broker
knows: how much waits, and on Redis how long the next in line has, where its message says when it was
sent. A broker that does not answer in time is left out; the lanes have been written before.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from celery_guard.conf import guard_settings
from celery_guard.events import emit
from celery_guard.relay.broker_app import load_app
from celery_guard.relay.presence import Worker
from celery_guard.relay.publish.depth import Queued, queued_in
from celery_guard.watch import beside
from celery_guard.watch.beside import MILLI, Known, Topic
from celery_guard.watch.deadline import Deadline, Overdue
from celery_guard.watch.metrics import Metric

TIME_MOST = 1.0
"""Longest that the broker may hold up the snapshot, in seconds."""
QUEUES_MOST = 32

READY, OLDEST = "broker_ready", "broker_oldest"
BROKER = Topic(name="broker_at", names=(READY, OLDEST))

BROKER_READY = Metric(
    name="broker_queue_messages",
    help="Messages that wait in the broker's queue, of guarded tasks and others; absent while not known.",
    labels=("queue",),
)
BROKER_OLDEST = Metric(
    name="broker_queue_oldest_age_seconds",
    help="How long the next message in line has waited (Redis), where a message says when it was sent.",
    labels=("queue",),
)
BROKER_METRICS = (BROKER_READY, BROKER_OLDEST)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class InBroker:
    """One queue of the broker: messages that wait, and how long the next in line has, where known."""

    queue: str
    messages: int
    age: float | None


def in_broker(known: Known) -> list[InBroker]:
    """The queues of the broker as they were measured, by name; ages as of the reading."""
    ages = {queue: max(0.0, known.now - at / MILLI) for queue, at in known.of(OLDEST).items()}
    return [
        InBroker(queue=queue, messages=number, age=ages.get(queue))
        for queue, number in sorted(known.of(READY).items())
    ]


class _Look:
    """One look at a time, at the queues that were asked for last."""

    def __init__(self) -> None:
        self._names: Collection[str] = ()
        self._reading = Deadline(self._read, TIME_MOST)

    def at(self, names: Collection[str]) -> Mapping[str, Queued]:
        self._names = names
        return self._reading.get()

    def _read(self) -> Mapping[str, Queued]:
        return queued_in(load_app(), self._names, TIME_MOST)


_look = _Look()


def sample(using: str, now: datetime, workers: Sequence[Worker]) -> None:
    """Look at the queues of the broker, and keep what was found as of ``now``."""
    try:
        found = _look.at(queues(workers))
    # Whatever a transport raises when it can't be asked: then nothing is known, and nothing told.
    except Exception as error:  # noqa: BLE001
        told = (
            "no answer in time"
            if isinstance(error, Overdue)
            else f"{type(error).__name__}: {error}"
        )
        emit("watch.broker_not_asked", logging.INFO, error=told)
        found = {}
    beside.keep(using, BROKER, _numbers(found), now)


def _numbers(found: Mapping[str, Queued]) -> beside.Numbers:
    if not found:
        return {}
    times = {name: queue.oldest for name, queue in found.items() if queue.ready}
    return {
        READY: {name: queue.ready for name, queue in found.items()},
        OLDEST: {name: round(at * MILLI) for name, at in times.items() if at is not None},
    }


def queues(workers: Sequence[Worker]) -> list[str]:
    """The queues of the lanes, of the app and of the workers that live, a bounded number."""
    lanes = [lane.queue for lane in guard_settings().lanes.values()]
    served = sorted({queue for worker in workers for queue in worker.queues})
    return list(dict.fromkeys([*lanes, *load_app().amqp.queues, *served]))[:QUEUES_MOST]
