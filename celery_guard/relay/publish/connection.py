"""The relay's own broker connection: nothing on it waits long, nothing is tried twice."""

from __future__ import annotations

import logging
import time
from math import ceil
from typing import Any

from celery import Celery
from kombu import Connection, Queue
from kombu.common import maybe_declare

from celery_guard.events import emit

DECLARE_EVERY = 30.0
"""Seconds after which queues are declared again, for a broker that forgot them."""

_BOUNDS = {
    "redis": ("socket_timeout", "socket_connect_timeout"),
    "amqp": ("read_timeout", "write_timeout"),
}
# What a site may have set for its own publishing and must not hold here.
_OVERRIDES: dict[str, dict[str, object]] = {
    "redis": {"retry_on_timeout": False},
    "amqp": {"confirm_publish": False},
}


class Broker:
    """Opens, keeps and drops one connection to the app's broker, and declares queues on it."""

    def __init__(self, app: Celery, timeout: float) -> None:
        self.app = app
        self.timeout = timeout
        self.driver: str = app.connection_for_write().transport.driver_type
        self.options: dict[str, Any] = {}
        self._connection: Connection | None = None
        self._declared: dict[str, float] = {}

    @property
    def connection(self) -> Connection:
        """The open connection.

        :raises Exception: whatever the transport raises when the broker can't be reached.
        """
        if self._connection is None:
            self._connection = self._open()
        return self._connection

    def _open(self) -> Connection:
        bounds = dict.fromkeys(_BOUNDS.get(self.driver, ()), self.timeout)
        options = {**bounds, **_OVERRIDES.get(self.driver, {}), **self.options}
        connection = self.app.connection_for_write(
            connect_timeout=self.timeout, transport_options=options, heartbeat=0
        )
        # Every broker of a fail-over list once, without a pause.
        once_each = max(0, len(connection.alt) - 1)
        if self.driver in _BOUNDS and connection.transport_options is not None:
            connection.transport_options["max_retries"] = once_each
        try:
            connection.ensure_connection(max_retries=once_each, timeout=ceil(self.timeout))
        except BaseException:
            self._let_go(connection)
            raise
        return connection

    def _let_go(self, connection: Connection) -> None:
        # AMQP would close with a handshake, and wait for a broker that may not answer; for the
        # others, collect() would change the time-out of every new socket of the process.
        if self.driver == "amqp":
            connection.collect()
        else:
            connection.release()

    @property
    def channel(self) -> Any:
        """The connection's first channel; every transport has its own kind."""
        return self.connection.default_channel

    def drop(self) -> None:
        """Let go of the connection without asking the broker, which may not answer."""
        connection, self._connection = self._connection, None
        self._declared.clear()
        if connection is not None:
            self._let_go(connection)

    def queue(self, name: str) -> Queue | None:
        """The app's declaration of the queue ``name``; None where it has none."""
        try:
            return self.app.amqp.queues[name]
        except KeyError:
            return None

    def declare(self, name: str, *, again: bool = False) -> None:
        """Make sure that a queue and its binding exist; at most once in ``DECLARE_EVERY``."""
        now = time.monotonic()
        if not again and self._declared.get(name, 0.0) > now:
            return
        if (queue := self.queue(name)) is not None:
            self._forget_declarations()
            self._declare(queue)
        self._declared[name] = now + DECLARE_EVERY

    def _forget_declarations(self) -> None:
        # kombu remembers what it has declared, and would not heal a broker that was wiped.
        (self.connection.declared_entities or set()).clear()
        if self.driver == "redis":
            self.channel.connection.state.clear()

    def _declare(self, queue: Queue) -> None:
        connection = self.connection
        try:
            maybe_declare(queue, self.channel)
        except connection.channel_errors as error:
            # It exists with other arguments, or we may not create it: it may do as it is. If
            # there is none, the messages come back as unroutable.
            emit("relay.declare_refused", logging.WARNING, queue=queue.name, error=str(error))
