"""The relay of the `limit_*` contenders: as little as is still correct.

`python -m benchmarks.limit_relay MODE`. Rows are locked, sent and removed in one transaction a
batch; a NOTIFY wakes it.
"""

import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

import django
import psycopg
import redis

from benchmarks.place import here

BATCH = 1000
SELECT = "SELECT id, payload FROM limit_outbox ORDER BY id LIMIT %s FOR UPDATE SKIP LOCKED"
DELETE = "DELETE FROM limit_outbox WHERE id = ANY(%s)"

Send = Callable[[Sequence[str]], None]


def publish(app: Any, producer: Any, payloads: Sequence[str]) -> None:
    """Hand finished messages to kombu, the queue declared once."""
    producer.maybe_declare(app.amqp.queues[here().queue])
    for payload in payloads:
        headers, properties, body = json.loads(payload)
        producer.publish(
            body,
            exchange="",
            routing_key=here().queue,
            headers=headers,
            content_type="application/json",
            content_encoding="utf-8",
            delivery_mode=2,
            **properties,
        )


def one_by_one(app: Any) -> Send:
    """Publish each message in a round trip of its own."""

    def send(payloads: Sequence[str]) -> None:
        with app.producer_or_acquire() as producer:
            publish(app, producer, payloads)

    return send


def pipelined(app: Any) -> Send:
    """Publish a batch in one pipeline where the transport has them."""

    def send(payloads: Sequence[str]) -> None:
        with app.producer_or_acquire() as producer, producer.batch():
            publish(app, producer, payloads)

    return send


def confirmed(app: Any) -> Send:
    """Publish a batch, then wait until the broker has confirmed all of it."""
    connection = app.connection_for_write()
    channel = connection.default_channel
    channel.confirm_select()
    confirms = Confirms()
    channel.events["basic_ack"].add(confirms)
    producer = app.amqp.Producer(channel)

    def send(payloads: Sequence[str]) -> None:
        publish(app, producer, payloads)
        confirms.owed += len(payloads)
        while confirms.last < confirms.owed:
            connection.drain_events(timeout=10)

    return send


class Confirms:
    """Counts a channel's confirms, which name the newest of the messages they stand for."""

    def __init__(self) -> None:
        self.owed = self.last = 0

    def __call__(self, delivery_tag: int, multiple: bool) -> None:
        """Take one confirm in."""
        self.last = max(self.last, delivery_tag)


def wire(app: Any) -> Send:
    """Push finished list elements."""
    client = redis.Redis.from_url(here().redis_url)

    def send(payloads: Sequence[str]) -> None:
        client.lpush(here().queue, *payloads)

    return send


MODES = {"publish": one_by_one, "pipeline": pipelined, "confirmed": confirmed, "wire": wire}


def drain(connection: psycopg.Connection[Any], send: Send) -> int:
    """Send one batch and return its size."""
    with connection.transaction():
        rows = connection.execute(SELECT, [BATCH]).fetchall()
        if rows:
            send([payload for _, payload in rows])
            connection.execute(DELETE, [[number for number, _ in rows]])
    return len(rows)


def main() -> None:
    """Relay until killed."""
    django.setup()
    from benchmarks.celery_app import app

    send = MODES[sys.argv[1]](app)
    listener = psycopg.connect(here().database_url, autocommit=True)
    listener.execute("LISTEN limit_outbox")
    connection = psycopg.connect(here().database_url)
    while True:
        if drain(connection, send) < BATCH:
            for _ in listener.notifies(timeout=5, stop_after=1):
                pass


if __name__ == "__main__":
    main()
