"""How many messages wait in a queue: a passive declare, which every broker answers."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from celery import Celery

from celery_guard.relay.publish.connection import Broker


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
