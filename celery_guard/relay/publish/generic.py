"""Any broker kombu knows, one message at a time."""

from __future__ import annotations

import time

from kombu import Producer

from celery_guard.jobs.sending import Sending
from celery_guard.outbox.envelope import Envelope
from celery_guard.relay.publish.connection import Broker
from celery_guard.relay.publish.wire import BudgetSpent, Outgoing, Tally, Unroutable, timeless


class KombuPublisher:
    """Publishes through kombu's own producer."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker

    def encode(self, sending: Sending) -> Outgoing:
        """See :class:`~celery_guard.relay.publish.wire.Publisher`."""
        if sending.envelope is None:
            raise Unroutable("the message is no longer in the outbox")
        envelope = Envelope.decode(sending.envelope)
        timeless({"headers": envelope.headers, "properties": envelope.properties}, sending)
        return Outgoing(
            job_id=sending.id,
            exchange=envelope.exchange,
            routing_key=envelope.routing_key,
            declare=envelope.declare,
            content=(sending.body, envelope),
        )

    def send(self, messages: list[Outgoing], tally: Tally, deadline: float) -> None:
        """See :class:`~celery_guard.relay.publish.wire.Publisher`."""
        producer = Producer(self.broker.channel, auto_declare=False)
        for message in messages:
            if time.monotonic() > deadline:
                raise BudgetSpent
            self._publish(producer, message)
            tally.sent.add(message.job_id)

    def _publish(self, producer: Producer, message: Outgoing) -> None:
        body, envelope = message.content
        for name in message.declare:
            self.broker.declare(name)
        producer.publish(
            body,
            exchange=envelope.exchange,
            routing_key=envelope.routing_key,
            content_type=envelope.content_type,
            content_encoding=envelope.content_encoding,
            headers=envelope.headers,
            retry=False,
            **envelope.properties,
        )

    def probe(self, message: Outgoing) -> None:
        """See :class:`~celery_guard.relay.publish.wire.Publisher`."""
        self.close()
        for name in message.declare:
            self.broker.declare(name, again=True)
        self.broker.channel  # noqa: B018

    def close(self) -> None:
        """See :class:`~celery_guard.relay.publish.wire.Publisher`."""
        self.broker.drop()
