"""Redis: how many messages wait, and when those next in line were sent, where they say so.

Celery writes no such time. AMQP has a property for it, which kombu passes on, and others write a header;
what of these is there is believed. kombu pushes at the left and pops at the right of one list for
each step of priority.
"""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from typing import Any

SAID_IN = ("timestamp", "sent_at", "published_at", "enqueued_at")
"""Properties and headers that hold a time: Unix seconds, or ISO 8601."""
LATEST = 1e11
"""What is above it is in milliseconds, or no time at all."""


def waiting_in(channel: Any, queue: str) -> int:
    """The messages in all of the queue's lists.

    A passive declare would look for lists without the site's prefix, and find none.
    """
    return int(channel._size(queue))


def oldest_in(channel: Any, queue: str) -> float | None:
    """The earliest time, Unix, among the heads of the queue's lists; None where none says it."""
    # kombu's prefixing client leaves the key of this command alone.
    prefix = getattr(channel, "global_keyprefix", "") or ""
    keys = [prefix + channel._q_for_pri(queue, step) for step in channel.priority_steps]
    with channel.conn_or_acquire() as client:
        heads = [client.lindex(key, -1) for key in keys]
    return min((at for head in heads if (at := sent_at(head)) is not None), default=None)


def sent_at(message: bytes | str | None) -> float | None:
    """When a message of kombu's says that it was sent, Unix time."""
    try:
        told = json.loads(message or "null")
        places = (told["properties"], told["headers"]) if isinstance(told, dict) else ()
        values = [place[name] for name in SAID_IN for place in places if name in (place or ())]
        return _unix(values[0]) if values else None
    # What others put into a queue may be anything.
    except (ValueError, TypeError, KeyError, OverflowError):
        return None


def _unix(value: object) -> float:
    try:
        seconds = float(value)  # type: ignore[arg-type]
    except ValueError:
        time = datetime.fromisoformat(str(value))
        seconds = (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
    if not (math.isfinite(seconds) and 0 < seconds < LATEST):
        raise ValueError(f"no time: {value!r}")
    return seconds
