"""The last step: finished messages into the broker, a batch at a time, on bounded connections.

Redis and RabbitMQ have a fast way of their own each; every other broker goes through kombu's
producer, one message at a time.
"""

from __future__ import annotations

from celery import Celery

from celery_guard.relay.publish.amqp import AmqpPublisher
from celery_guard.relay.publish.connection import Broker
from celery_guard.relay.publish.generic import KombuPublisher
from celery_guard.relay.publish.redis import RedisPublisher
from celery_guard.relay.publish.wire import Publisher

_WAYS: dict[str, type[KombuPublisher]] = {"redis": RedisPublisher, "amqp": AmqpPublisher}


def publisher_for(app: Celery, timeout: float) -> Publisher:
    """A publisher for ``app``'s broker; ``timeout`` bounds each socket operation, in seconds."""
    broker = Broker(app, timeout)
    return _WAYS.get(broker.driver, KombuPublisher)(broker)
