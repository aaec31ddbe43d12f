"""One Redis connection over which wakes leave without waiting for their answers."""

from __future__ import annotations

import time
from typing import Any

from celery_guard.conf import guard_settings
from celery_guard.redis import bounded_client
from celery_guard.relay.channel import Channel

MOST_UNANSWERED = 64
"""Wakes under way at once: few enough to fit into any socket's buffer, so that none can block."""


class Bell:
    """Publishes notes to one channel. Not for two threads at once.

    Opening it connects, which may take as long as ``timeout``, in seconds.

    :raises celery_guard.redis.Errors: from every method, after which it is of no more use.
    """

    def __init__(self, channel: Channel, timeout: float) -> None:
        self._settings = guard_settings()
        self._timeout = timeout
        self._name = channel.name
        self._packed: dict[str, Any] = {}
        self._unanswered = 0
        self._asked_at = 0.0
        client = bounded_client(channel.url, timeout)
        self._connection: Any = client.connection_pool.make_connection()
        self._connection.connect()  # type: ignore[no-untyped-call]

    def fits(self) -> bool:
        """Whether the settings are still those that it was opened under."""
        return self._settings is guard_settings()

    def ring(self, note: str) -> bool:
        """Publish ``note`` and return at once; False where Redis owes too many answers for that."""
        # Also finds out that the other side has closed the connection meanwhile.
        while self._connection.can_read(timeout=0):
            self._answered()
        now = time.monotonic()
        if self._unanswered == 0:
            self._asked_at = now
        elif self._unanswered >= MOST_UNANSWERED or now - self._asked_at > self._timeout:
            return False
        self._connection.send_packed_command(self._command(note), check_health=False)
        self._unanswered += 1
        return True

    def settle(self) -> None:
        """Wait for all answers, each of them as long as the timeout says."""
        while self._unanswered:
            self._answered()

    def close(self) -> None:
        """Give the connection up."""
        self._connection.disconnect()

    def _answered(self) -> None:
        self._connection.read_response()
        self._unanswered = max(0, self._unanswered - 1)
        self._asked_at = time.monotonic()

    def _command(self, note: str) -> Any:
        if (packed := self._packed.get(note)) is None:
            if len(self._packed) > 100:
                self._packed.clear()
            packed = self._connection.pack_command("PUBLISH", self._name, note)
            self._packed[note] = packed
        return packed
