"""What lies at a broker, raw: the Redis entries and the AMQP messages as they were written.

Imports neither Django nor the guard: the process that knows nothing of the guard uses it too.
"""

import base64
import contextlib
import json
import re
import time
from collections.abc import Iterator, Sequence
from typing import Any

import amqp
import redis
from kombu import Connection

from tests.enqueue.forms import opened

UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
Entry = dict[str, Any]


def take_all(url: str, queues: Sequence[str], least: int = 0) -> list[Entry]:
    """Everything in ``queues``, oldest first, removed from the broker.

    Without confirms a publish returns before the message is there: ``least`` are waited for.
    """
    take = _take_redis if url.startswith("redis") else _take_amqp
    entries = take(url, queues)
    deadline = time.monotonic() + 10
    while len(entries) < least and time.monotonic() < deadline:
        time.sleep(0.01)
        entries += take(url, queues)
    return entries


def _take_redis(url: str, queues: Sequence[str]) -> list[Entry]:
    entries = []
    with contextlib.closing(redis.Redis.from_url(url)) as client:
        for queue in queues:
            for key in (queue, *(f"{queue}\x06\x16{step}" for step in (3, 6, 9))):
                # The consumer pops at the right.
                for raw in reversed(client.lrange(key, 0, -1)):
                    entry = json.loads(raw)
                    body = base64.b64decode(entry.pop("body"))
                    entries.append({"list": key, "body": _text(body), **entry})
                client.delete(key)
    return entries


def _take_amqp(url: str, queues: Sequence[str]) -> list[Entry]:
    entries = []
    with Connection(url) as connection:
        for queue in queues:
            # A queue that is not there closes its channel, so each gets its own.
            with contextlib.suppress(amqp.NotFound), connection.channel() as channel:
                entries += [_amqp_entry(queue, message) for message in _drain(channel, queue)]
    return entries


def _drain(channel: Any, queue: str) -> Iterator[Any]:
    while (message := channel.basic_get(queue, no_ack=True)) is not None:
        yield message


def _amqp_entry(queue: str, message: Any) -> Entry:
    info = {n: message.delivery_info[n] for n in ("exchange", "routing_key")}
    body = message.body if isinstance(message.body, bytes) else message.body.encode()
    properties = json.loads(json.dumps(message.properties, default=repr))
    return {"list": queue, "body": _text(body), "properties": properties, **info}


def _text(body: bytes) -> str:
    # Compressed bodies are compared as they are, and shown in a form that can be read too.
    plain = opened(body)
    return body.decode("latin-1") + ("" if plain == body else f" = {plain.decode('latin-1')}")


def comparable(
    entries: Sequence[Entry], own: dict[str, str], *, parsed: bool = False
) -> list[Entry]:
    """The entries with what differs between any two publishes made equal.

    Ids become numbers in the order in which they appear; ``own`` names what is the sending
    process' own (its node name, its reply address). Where a body came through a frozen canvas
    (``parsed``), the order of its names means nothing.
    """
    if parsed:
        entries = [
            {**entry, "body": json.loads(entry["body"], object_hook=_without_own_id)}
            for entry in entries
        ]
    # Celery sends the parts of a nested canvas over several connections: their order is chance.
    texts = [json.dumps(_without_tag(entry), sort_keys=True) for entry in entries]
    text = f"[{', '.join(sorted(texts, key=lambda one: UUID.sub('', one)))}]"
    for name, value in own.items():
        text = text.replace(json.dumps(value)[1:-1], f"<{name}>")
    numbers: dict[str, str] = {}
    text = UUID.sub(lambda m: numbers.setdefault(m[0], f"<id {len(numbers)}>"), text)
    found: list[Entry] = json.loads(text)
    return found


def _without_own_id(found: dict[str, Any]) -> dict[str, Any]:
    # A chain's id is that of its last step; Celery below 5.7 leaves it open until it runs.
    if found.get("subtask_type") == "chain":
        options = {n: v for n, v in found["options"].items() if n != "task_id"}
        return {**found, "options": options}
    return found


def _without_tag(entry: Entry) -> Entry:
    properties = {n: v for n, v in entry["properties"].items() if n != "delivery_tag"}
    return {**entry, "properties": properties}


def headers_of(entry: Entry) -> dict[str, Any]:
    """The headers, where the broker keeps them."""
    found: dict[str, Any] = entry.get("headers") or entry["properties"].get("application_headers")
    return found


def without_time(entries: Sequence[Entry]) -> list[Entry]:
    """The entries without what the guard takes out of a message, and without what it adds."""
    stripped = []
    for entry in entries:
        headers = {**headers_of(entry), "eta": None, "expires": None}
        headers.pop("guard_job", None)
        properties = {n: v for n, v in entry["properties"].items() if n != "expiration"}
        if "application_headers" in properties:
            stripped.append({**entry, "properties": {**properties, "application_headers": headers}})
        else:
            stripped.append({**entry, "properties": properties, "headers": headers})
    return stripped
