"""Redis: what kombu would write, but a whole batch in one push.

kombu's Redis channel makes a new client for every publish and encodes through hooks. Here one
client is kept, the stored envelope is not decoded further than JSON, and the messages of a list
go in one variadic ``LPUSH``, which keeps their order for consumers that pop at the right.
"""

from __future__ import annotations

import base64
import json
import time
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

from redis import Redis

from celery_guard.jobs.sending import Sending
from celery_guard.relay.publish.generic import KombuPublisher
from celery_guard.relay.publish.wire import BudgetSpent, Outgoing, Tally, Unroutable, timeless

_encode = json.JSONEncoder().encode
MOST_AT_ONCE = 500
BYTES_AT_ONCE = 1 << 20
"""One push holds Redis' only thread; these bound it."""


class RedisPublisher(KombuPublisher):
    """Publishes to the lists that kombu's Redis transport reads."""

    _client: Redis | None = None

    def encode(self, sending: Sending) -> Outgoing:
        """See :class:`~celery_guard.relay.publish.wire.Publisher`."""
        if sending.envelope is None:
            raise Unroutable("the message is no longer in the outbox")
        # Plain JSON: kombu's tagged values pass through as they are.
        fields = json.loads(sending.envelope)
        if fields["exchange"]:
            return super().encode(sending)
        headers, properties = timeless(fields, sending)
        routing_key = fields["routing_key"]
        properties["delivery_info"] = {"exchange": "", "routing_key": routing_key}
        # A stored None is Celery's way to give none, which kombu sends as 0.
        properties["priority"] = properties.get("priority") or 0
        properties["body_encoding"] = "base64"
        properties["delivery_tag"] = str(uuid.uuid4())
        payload = _encode(
            {
                "body": base64.b64encode(sending.body).decode("ascii"),
                "content-encoding": fields["content_encoding"],
                "content-type": fields["content_type"],
                "headers": headers,
                "properties": properties,
            }
        )
        return Outgoing(
            job_id=sending.id,
            exchange="",
            routing_key=routing_key,
            declare=tuple(fields["declare"]),
            content=(_priority(properties), payload),
        )

    def send(self, messages: list[Outgoing], tally: Tally, deadline: float) -> None:
        """See :class:`~celery_guard.relay.publish.wire.Publisher`."""
        channel = self.broker.channel
        for name in {name for message in messages for name in message.declare}:
            self.broker.declare(name)
        for key, group in _pushes(channel, [m for m in messages if not m.exchange]):
            if time.monotonic() > deadline:
                raise BudgetSpent
            self._push(channel, key, group)
            tally.sent.update(message.job_id for message in group)
        exchanged = [message for message in messages if message.exchange]
        if routable := [m for m in exchanged if self._has_readers(channel, m, tally)]:
            super().send(routable, tally, deadline)

    def _push(self, channel: Any, key: str, group: list[Outgoing]) -> None:
        self.client.lpush(key, *(message.content[1] for message in group))
        queue = group[0].routing_key
        if queue in getattr(channel, "_expires", ()):
            channel._maybe_update_queues_expire(self.client, queue)

    def _has_readers(self, channel: Any, message: Outgoing, tally: Tally) -> bool:
        for name in message.declare:
            # Bindings are Redis keys too: after a wipe the message would go nowhere, in silence.
            self.broker.declare(name, again=True)
        fanout = channel.typeof(message.exchange).type == "fanout"
        if fanout or channel._lookup(message.exchange, message.routing_key):
            return True
        tally.refused[message.job_id] = "no queue is bound to its exchange and routing key"
        return False

    @property
    def client(self) -> Redis:
        """One client for the life of the connection; kombu's prefix and TLS options hold."""
        if self._client is None:
            with self.broker.channel.conn_or_acquire() as client:
                self._client = client
        return self._client

    def probe(self, message: Outgoing) -> None:
        """Push to the message's own list and take it back, in one transaction nobody sees.

        A ping would do for a dead server, but not for one that is full, read-only or fenced.
        """
        self.close()
        key = "celery_guard.probe" if message.exchange else message.routing_key
        with self.client.pipeline(transaction=True) as pipe:
            # Commands that kombu's prefixing client knows; it would leave the key of LPOP alone.
            pipe.rpush(key, "")
            pipe.rpop(key)
            pipe.execute()

    def close(self) -> None:
        """See :class:`~celery_guard.relay.publish.wire.Publisher`."""
        self._client = None
        self.broker.drop()


def _priority(properties: Mapping[str, Any]) -> int:
    try:
        return max(0, min(9, int(properties.get("priority") or 0)))
    except (TypeError, ValueError):
        return 0


def _pushes(channel: Any, messages: list[Outgoing]) -> Iterator[tuple[str, list[Outgoing]]]:
    groups: dict[tuple[str, int], list[Outgoing]] = {}
    for message in messages:
        groups.setdefault((message.routing_key, message.content[0]), []).append(message)
    for (queue, priority), group in groups.items():
        for part in _parts(group):
            yield channel._q_for_pri(queue, priority), part


def _parts(group: list[Outgoing]) -> Iterator[list[Outgoing]]:
    part: list[Outgoing] = []
    size = 0
    for message in group:
        length = len(message.content[1])
        if part and (len(part) == MOST_AT_ONCE or size + length > BYTES_AT_ONCE):
            yield part
            part, size = [], 0
        part.append(message)
        size += length
    yield part
