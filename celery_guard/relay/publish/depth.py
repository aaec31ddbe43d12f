"""How many messages wait in a queue: Redis' lists, and of all others a passive declare."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import Any

from celery import Celery

from celery_guard.relay.publish.connection import Broker
from celery_guard.relay.publish.heads import oldest_in, waiting_in


def ready_in(app: Celery, queues: Collection[str], timeout: float) -> dict[str, int]:
    """Ready messages by queue; a queue that doesn't exist holds none.

    :raises Exception: whatever the transport raises when the broker can't be asked.
    """
    if not queues:
        return {}
    broker = Broker(app, timeout)
    try:
        return {queue: _ready(broker, queue) for queue in queues}
    finally:
        broker.drop()


def _ready(broker: Broker, queue: str) -> int:
    if broker.driver == "redis":
        return waiting_in(broker.channel, queue)
    # A channel each: a broker closes the one on which it is asked for a queue it doesn't have.
    channel: Any = broker.connection.channel()
    try:
        return int(channel.queue_declare(queue, passive=True).message_count)
    except broker.connection.channel_errors as error:
        # kombu's virtual transports give the code as text.
        if str(getattr(error, "reply_code", "")) == "404":
            return 0
        raise
    finally:
        broker.connection.maybe_close_channel(channel)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Queued:
    """What waits in one queue: how many messages, and when the oldest that says so was sent.

    ``oldest`` is Unix time; None where no message at the head says it, or the broker has no head to look at.
    """

    ready: int
    oldest: float | None = None


def queued_in(app: Celery, queues: Collection[str], timeout: float) -> dict[str, Queued]:
    """What waits by queue, guarded or not, for a look at it; nothing is taken.

    :raises Exception: whatever the transport raises when the broker can't be asked.
    """
    broker = Broker(app, timeout)
    try:
        look = oldest_in if broker.driver == "redis" else _no_head
        return {
            queue: Queued(ready=_ready(broker, queue), oldest=look(broker.channel, queue))
            for queue in queues
        }
    finally:
        broker.drop()


def _no_head(channel: object, queue: str) -> None:
    # To look at a message of RabbitMQ is to take it and give it back, out of order.
    return None
