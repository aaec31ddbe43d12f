"""The relay's side of the wake channel: a thread that listens, and says when it can't."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from celery import Celery
from django.db import Error as DatabaseError
from django.db import connections

from celery_guard.conf import guard_settings
from celery_guard.events import emit
from celery_guard.redis import Errors, bounded_client
from celery_guard.relay.breaker import Breaker
from celery_guard.relay.channel import Channel, channel_for, read_note

PATIENCE = 1.0
"""Seconds between two looks at whether to stop, and for a channel to prove itself."""
CHECK_EVERY = 15.0
"""Seconds of silence after which the channel has to prove that it still lives."""


class Listener:
    """Calls ``woken(lanes)`` for each wake; an empty set means any lane.

    ``hears`` is True while the channel is known to work.
    """

    def __init__(self, using: str, woken: Callable[[set[str]], None], app: Celery) -> None:
        self.hears = False
        self._using = using
        self._woken = woken
        self._app = app
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="guard-listen", daemon=True)

    def start(self) -> None:
        """Listen from now on."""
        self._thread.start()

    def stop(self) -> None:
        """Stop listening; the thread ends by itself within a moment."""
        self._stopping.set()

    def _run(self) -> None:
        channel = channel_for(self._using, self._app)
        hear = {"redis": self._over_redis, "notify": self._by_notify}.get(channel.kind)
        breaker = Breaker()
        while hear is not None and not self._stopping.is_set():
            try:
                for note in hear(channel):
                    breaker.worked()
                    self._heard(note)
            except (*Errors, DatabaseError) as error:
                failed = f"{type(error).__name__}: {error}"
                emit("relay.wake_channel_lost", logging.WARNING, error=failed)
            finally:
                self.hears = False
                connections.close_all()
            self._stopping.wait(breaker.failed())

    def _heard(self, note: str | None) -> None:
        if not self.hears:
            # Whatever was committed while nobody listened.
            self._woken(set())
            self.hears = True
        elif note is not None:
            self._woken(read_note(note))

    def _over_redis(self, channel: Channel) -> Iterator[str | None]:
        client: Any = bounded_client(channel.url, guard_settings().relay.timeout, self._app)
        with client.pubsub(ignore_subscribe_messages=True) as pubsub:
            pubsub.subscribe(channel.name)
            quiet_since = time.monotonic()
            yield None
            while not self._stopping.is_set():
                message = pubsub.get_message(timeout=PATIENCE)
                if message is not None:
                    quiet_since = time.monotonic()
                    yield message["data"].decode() if message["type"] == "message" else None
                elif time.monotonic() - quiet_since > CHECK_EVERY:
                    # A server that froze or vanished is silent too: it has to answer this.
                    client.ping()
                    pubsub.ping()
                    quiet_since = time.monotonic()
        client.close()

    def _by_notify(self, channel: Channel) -> Iterator[str | None]:
        connection = connections[self._using]
        with connection.cursor() as cursor:
            cursor.execute("LISTEN celery_guard_wake")
            # A pooler in transaction mode takes LISTEN and never delivers: prove it first.
            cursor.execute("SELECT pg_notify(%s, %s)", [channel.name, "?"])
        proved = False
        quiet_since = time.monotonic()
        while not self._stopping.is_set():
            notes = list(connection.connection.notifies(timeout=PATIENCE, stop_after=1))
            if not notes and not proved:
                raise DatabaseError("LISTEN is not delivered (a transaction pooler?)")
            proved = True
            for note in notes:
                quiet_since = time.monotonic()
                yield None if note.payload == "?" else note.payload
            if time.monotonic() - quiet_since > CHECK_EVERY:
                with connection.cursor() as cursor:
                    cursor.execute("SELECT 1")
                quiet_since = time.monotonic()
