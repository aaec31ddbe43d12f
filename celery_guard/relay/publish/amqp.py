"""RabbitMQ: N publishes, one wait. Every message is confirmed, and mandatory.

A confirm alone says that the broker has dealt with a message, not that it kept it: one that no
queue wants is returned first and confirmed then. Both are counted, by delivery tag.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from typing import Any

from celery_guard.jobs.named import JOB_HEADER
from celery_guard.outbox.envelope import Envelope
from celery_guard.relay.publish.connection import Broker
from celery_guard.relay.publish.generic import KombuPublisher
from celery_guard.relay.publish.wire import BudgetSpent, Outgoing, Tally

_NO_QUEUE = "celery_guard.probe.no_such_queue"
_PROBE = Outgoing(
    job_id=0,
    exchange="",
    routing_key=_NO_QUEUE,
    declare=(),
    content=(
        b"",
        Envelope(
            content_type="text/plain",
            content_encoding="utf-8",
            exchange="",
            routing_key=_NO_QUEUE,
            headers={},
            properties={"correlation_id": _NO_QUEUE},
        ),
    ),
)


class BrokerBlocked(Exception):
    """RabbitMQ says that it takes no messages now (memory or disk alarm)."""


class AmqpPublisher(KombuPublisher):
    """Publishes on a channel of its own, in confirm mode."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker)
        self._channel: Any = None
        self._blocked = ""
        self._last_tag = 0
        self._waiting: OrderedDict[int, Outgoing] = OrderedDict()
        self._tally = Tally()
        self._returned: dict[object, str] = {}
        broker.options = {"on_blocked": self._on_blocked, "on_unblocked": self._on_unblocked}

    def send(self, messages: list[Outgoing], tally: Tally, deadline: float) -> None:
        """See :class:`~celery_guard.relay.publish.wire.Publisher`."""
        for name in {name for message in messages for name in message.declare}:
            self.broker.declare(name)
        self._send(messages, tally, deadline)
        # A queue that somebody deleted is made again, and its messages tried once more.
        back = [m for m in messages if m.job_id in tally.refused and m.declare]
        if back:
            for name in {name for message in back for name in message.declare}:
                self.broker.declare(name, again=True)
            for message in back:
                del tally.refused[message.job_id]
            self._send(back, tally, deadline)

    def _send(self, messages: list[Outgoing], tally: Tally, deadline: float) -> None:
        channel = self._open_channel()
        self._waiting.clear()
        self._returned.clear()
        self._tally = tally
        for message in messages:
            self._check(deadline)
            self._last_tag += 1
            self._waiting[self._last_tag] = message
            channel.basic_publish(
                self._message(channel, message),
                exchange=message.exchange,
                routing_key=message.routing_key,
                mandatory=True,
            )
        while self._waiting:
            self._check(deadline)
            self._wait(deadline)

    def _wait(self, deadline: float) -> None:
        try:
            self.broker.connection.drain_events(timeout=max(0.01, deadline - time.monotonic()))
        except TimeoutError as error:
            raise BudgetSpent from error

    def _message(self, channel: Any, message: Outgoing) -> Any:
        body, envelope = message.content
        properties = dict(envelope.properties)
        priority = properties.pop("priority", 0)
        return channel.prepare_message(
            body,
            priority=priority,
            content_type=envelope.content_type,
            content_encoding=envelope.content_encoding,
            headers=envelope.headers,
            properties=properties,
        )

    def _check(self, deadline: float) -> None:
        if self._blocked:
            raise BrokerBlocked(self._blocked)
        if time.monotonic() > deadline:
            raise BudgetSpent

    def _open_channel(self) -> Any:
        if self._channel is None or not self._channel.is_open:
            channel: Any = self.broker.connection.channel()
            _publish_without_reading(channel.connection)
            channel.confirm_select()
            channel.events["basic_ack"].add(self._on_ack)
            channel.events["basic_nack"].add(self._on_nack)
            channel.events["basic_return"].add(self._on_return)
            self._channel, self._last_tag = channel, 0
        return self._channel

    def _settled(self, tag: int, multiple: bool) -> list[Outgoing]:
        tags = [t for t in self._waiting if t <= tag] if multiple else [tag]
        return [self._waiting.pop(t) for t in tags if t in self._waiting]

    def _on_ack(self, tag: int, multiple: bool) -> None:
        for message in self._settled(tag, multiple):
            if (reason := self._returned.pop(_identity(message), None)) is not None:
                self._tally.refused[message.job_id] = reason
            else:
                self._tally.sent.add(message.job_id)

    def _on_nack(self, tag: int, multiple: bool) -> None:
        for message in self._settled(tag, multiple):
            self._tally.refused[message.job_id] = "the broker refused it (nack)"

    def _on_return(self, error: object, exchange: str, routing_key: str, message: Any) -> None:
        headers = message.properties.get("application_headers") or {}
        identity = headers.get(JOB_HEADER) or message.properties.get("correlation_id")
        self._returned[identity] = f"no queue takes it ({error})"

    def _on_blocked(self, reason: str) -> None:
        self._blocked = reason

    def _on_unblocked(self) -> None:
        self._blocked = ""

    def probe(self, message: Outgoing) -> None:
        """Publish to a queue that does not exist and see it come back confirmed.

        Under a memory alarm connecting and declaring still work; only publishing does not.
        """
        self.close()
        self._send([_PROBE], Tally(), time.monotonic() + self.broker.timeout)

    def close(self) -> None:
        """See :class:`~celery_guard.relay.publish.wire.Publisher`."""
        self._channel, self._blocked, self._last_tag = None, "", 0
        self._waiting.clear()
        self.broker.drop()


def _publish_without_reading(connection: Any) -> None:
    # py-amqp looks at the socket before each publish in case the broker says that it is blocked,
    # which doubles a publish's cost. The broker knows by now that we want to be told; we read
    # what it says while we wait for the confirms.
    connection.client_properties = {**connection.client_properties, "capabilities": {}}


def _identity(message: Outgoing) -> object:
    envelope = message.content[1]
    return envelope.headers.get(JOB_HEADER) or envelope.properties.get("correlation_id")
