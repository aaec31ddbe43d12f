"""A stored message as an operator may see it: how it travels, never what it carries."""

from __future__ import annotations

import dataclasses

from django.db.models.functions import Length

from celery_guard.outbox.envelope import Envelope
from celery_guard.outbox.models import OutboxMessage

# Any other header may hold what a tracing or security library put there: its name is enough.
SHOWN_HEADERS = (
    "id",
    "task",
    "root_id",
    "parent_id",
    "group",
    "lang",
    "origin",
    "retries",
    "timelimit",
    "ignore_result",
)
# These two are the arguments in other words.
ARGUMENTS = frozenset({"argsrepr", "kwargsrepr"})


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """A message without its body; ``size`` is the body's, in bytes."""

    pk: int
    size: int
    facts: tuple[tuple[str, str], ...]
    headers: tuple[tuple[str, str], ...]
    hidden: tuple[str, ...]


def describe(using: str, message_id: int | None) -> Described | None:
    """The message ``message_id`` without its body, or None when it has been purged."""
    if message_id is None:
        return None
    rows = OutboxMessage.objects.using(using).filter(pk=message_id)
    row = rows.values_list("envelope", Length("body")).first()
    return None if row is None else described(message_id, *row)


def described(pk: int, text: str, size: int) -> Described:
    """The stored envelope ``text`` of a message whose body has ``size`` bytes."""
    envelope = Envelope.decode(text)
    headers = envelope.headers
    facts = {
        "exchange": envelope.exchange or "(default)",
        "routing key": envelope.routing_key,
        "queues": ", ".join(envelope.declare),
        "content type": envelope.content_type,
        "priority": envelope.properties.get("priority"),
    }
    return Described(
        pk=pk,
        size=size,
        facts=tuple((name, str(value)) for name, value in facts.items() if value is not None),
        headers=tuple((name, str(headers[name])) for name in SHOWN_HEADERS if name in headers),
        hidden=tuple(sorted(set(headers) - set(SHOWN_HEADERS) - ARGUMENTS)),
    )
