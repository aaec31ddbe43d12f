"""A connection to Redis that is kept in hand, for the two questions around every body.

What surrounds a command in a client and its pool takes five times as long as to send it and to read
the answer.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import redis
from redis.exceptions import NoScriptError

from celery_guard.redis import Errors

Again = Callable[[], object]


class Kept:
    """One connection of the kind that ``client`` makes, for one thread at a time."""

    def __init__(self, client: redis.Redis) -> None:
        self._client = client
        self._lock = threading.Lock()
        self._connection: Any = None
        self._owed: list[Again] = []
        self._answered: set[str] = set()

    @contextlib.contextmanager
    def in_hand(self) -> Iterator[Kept | None]:
        """This connection for the block; None while another thread has it.

        To wait would add up time-outs where Redis is frozen.
        """
        if not self._lock.acquire(blocking=False):
            yield None
            return
        try:
            yield self
        finally:
            self._lock.release()

    def settle(self) -> None:
        """Take up what is owed, where nobody asks; not while another thread has this in hand: it will.

        :raises redis.RedisError: an answer was an error, or did not come.
        """
        with self.in_hand() as mine:
            if mine is not None:
                self._take_up_answers()

    def ask(self, name: str, command: bytes) -> Any:
        """What Redis answers to ``command``, which is packed and runs the script ``name``.

        :raises redis.RedisError: the answer was an error, or none came: it may have been carried out.
        """
        with self._usable() as connection:
            connection.send_packed_command([command], check_health=False)
            answer = connection.read_response()
            self._answered.add(name)
        return answer

    def tell(self, name: str, command: bytes, again: Again) -> None:
        """Send ``command``, and let the next one of this process take up the answer, or :meth:`settle`.

        Redis carries it out before all that is sent here later. ``again`` is done instead where
        the answer says that Redis has forgotten the script; until it has been answered here once, the
        answer is waited for.

        :raises redis.RedisError: when it can't be sent; it may have been carried out.
        """
        if name not in self._answered:
            self.ask(name, command)
            return
        with self._usable() as connection:
            connection.send_packed_command([command], check_health=False)
            self._owed.append(again)

    @contextlib.contextmanager
    def _usable(self) -> Iterator[Any]:
        self._take_up_answers()
        connection = self._ready()
        sound = False
        try:
            yield connection
            sound = True
        finally:
            # Whatever broke in: the next command must not meet the answer to this one.
            if not sound:
                self._drop()

    def _take_up_answers(self) -> None:
        while self._owed:
            try:
                self._take_up(self._owed[0])
            except redis.ConnectionError:
                # Closed meanwhile. What the answer would have said is past.
                self._drop()
            except BaseException:
                self._drop()
                raise

    def _take_up(self, again: Again) -> None:
        try:
            self._connection.read_response()
        except NoScriptError:
            again()
        self._owed.pop(0)

    def _drop(self) -> None:
        self._owed.clear()
        # The next one may lead to a server that knows no script.
        self._answered.clear()
        self._connection.disconnect()

    def _ready(self) -> Any:
        if self._connection is None:
            # Its pool hands them out in another way before redis-py 5.3.
            self._connection = self._client.connection_pool.make_connection()
        elif self._is_spoilt():
            # Redis has been restarted, or has closed what was long unused.
            self._drop()
        return self._connection

    def _is_spoilt(self) -> bool:
        try:
            return bool(self._connection.can_read())
        except Errors:
            return True


def packed(parts: Iterable[bytes]) -> bytes:
    """``parts`` as Redis reads them in a command."""
    return b"".join([b"$%d\r\n%b\r\n" % (len(part), part) for part in parts])
