"""Everything of a Celery message but its body, as stored text."""

from __future__ import annotations

import dataclasses
from typing import Any

from kombu.utils import json


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """How a body travels: the arguments of ``kombu.Producer.publish``, ready to be stored.

    ``properties`` holds the AMQP properties (correlation id, reply-to, delivery mode, priority,
    expiration, …); ``declare`` the names of the queues that must exist first.
    """

    content_type: str
    content_encoding: str
    exchange: str
    routing_key: str
    headers: dict[str, Any]
    properties: dict[str, Any]
    declare: tuple[str, ...] = ()

    def encode(self) -> str:
        """The envelope as kombu JSON, which keeps dates, decimals, UUIDs and bytes."""
        return str(
            json.dumps(
                {
                    "content_type": self.content_type,
                    "content_encoding": self.content_encoding,
                    "exchange": self.exchange,
                    "routing_key": self.routing_key,
                    "headers": self.headers,
                    "properties": self.properties,
                    "declare": self.declare,
                }
            )
        )

    @classmethod
    def decode(cls, text: str) -> Envelope:
        """The envelope that :meth:`encode` wrote."""
        fields = json.loads(text)
        fields["declare"] = tuple(fields["declare"])
        return cls(**fields)
