"""The broker seen from outside: lengths, and emptying it between measurements."""

from functools import lru_cache
from typing import Any

import redis

from benchmarks.jobs import counters
from benchmarks.place import here


@lru_cache(maxsize=1)
def redis_broker() -> redis.Redis:
    """Return the client of the Redis database that serves as broker."""
    return redis.Redis.from_url(here().redis_url)


@lru_cache(maxsize=1)
def _amqp_connection() -> Any:
    from kombu import Connection

    return Connection(here().amqp_url)


def length(queue: str) -> int:
    """Return the ready messages of `queue`; 0 while it does not exist."""
    if here().broker == "amqp":
        return _amqp_length(queue)
    return redis_broker().llen(queue)


def unfinished(queue: str) -> int:
    """Return the ready and, on Redis, the unacknowledged messages of `queue`."""
    if here().broker == "amqp":
        return _amqp_length(queue)
    waiting = redis_broker().pipeline(transaction=False)
    waiting.llen(queue)
    waiting.hlen("unacked")
    return sum(waiting.execute())


def empty(queue: str) -> None:
    """Forget all messages and counters."""
    redis_broker().flushdb()
    counters().flushdb()
    if here().broker == "amqp":
        _amqp_declare(queue).queue_purge(queue)


def _amqp_length(queue: str) -> int:
    from amqp.exceptions import NotFound

    channel = _amqp_connection().default_channel
    try:
        return int(channel.queue_declare(queue, passive=True).message_count)
    except NotFound:  # the server closes the channel over it: the next look needs a new one
        _amqp_connection().collapse()
        return 0


def _amqp_declare(queue: str) -> Any:
    channel = _amqp_connection().default_channel
    channel.queue_declare(queue, durable=True, auto_delete=False)
    return channel
