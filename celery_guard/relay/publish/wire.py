"""What a message is on its way out, and what every publisher can do with it."""

from __future__ import annotations

import dataclasses
from typing import Any, Protocol

from celery_guard.jobs.named import JOB_HEADER, NamedJob
from celery_guard.jobs.sending import Sending


class BudgetSpent(Exception):
    """The time for this batch is over; what is not confirmed by now counts as not sent."""


class Unroutable(Exception):
    """The message is gone from the outbox, or can never be made into a broker's message."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """One message, ready: ``content`` is whatever the publisher that made it sends."""

    job_id: int
    exchange: str
    routing_key: str
    declare: tuple[str, ...]
    content: Any


@dataclasses.dataclass(slots=True)
class Tally:
    """What is known so far of a batch: confirmed by the broker, or refused with a reason."""

    sent: set[int] = dataclasses.field(default_factory=set)
    refused: dict[int, str] = dataclasses.field(default_factory=dict)


class Publisher(Protocol):
    """One destination's connection. Used by one thread."""

    def encode(self, sending: Sending) -> Outgoing:
        """Build the message; no network. Any error means that no broker can take it."""

    def send(self, messages: list[Outgoing], tally: Tally, deadline: float) -> None:
        """Send in order, writing down in ``tally`` what the broker answered.

        Any error leaves the rest unknown: such messages may or may not have arrived.

        :param deadline: on :func:`time.monotonic`'s clock.
        """

    def probe(self, message: Outgoing) -> None:
        """Raise unless ``message``'s destination takes messages now. Leaves nothing there."""

    def close(self) -> None:
        """Drop the connection without a handshake; the next call opens another."""


def timeless(fields: dict[str, Any], sending: Sending) -> tuple[dict[str, Any], dict[str, Any]]:
    """Headers and properties as they go out: without time, with the job's name.

    Due time and expiry stand on the job's row. In the message they would make the worker hold
    it in memory, or revoke it while the ledger still waits for the job.
    """
    headers, properties = fields["headers"], fields["properties"]
    for name in ("eta", "expires"):
        if name in headers:
            headers[name] = None
    if not sending.plain:
        headers[JOB_HEADER] = str(NamedJob(sending.id, sending.public_id))
    properties.pop("expiration", None)
    return headers, properties
