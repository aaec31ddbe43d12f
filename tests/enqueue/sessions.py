"""Other database sessions, and steps that they take in turn."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any, TypeVar

from django.db import connections, transaction

T = TypeVar("T")
LONG = 30.0
"""No step may take this many seconds."""


def apart(work: Callable[[], T]) -> "Future[T]":
    """Run ``work`` in a thread, with database connections of its own that end with it."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            result = work()
        except BaseException as error:  # noqa: BLE001 - told to whoever asks for the result
            future.set_exception(error)
        else:
            future.set_result(result)
        finally:
            connections.close_all()

    threading.Thread(target=run, daemon=True).start()
    return future


class Undo(Exception):
    """Ends a block."""


@contextlib.contextmanager
def undone(**options: Any) -> Iterator[None]:
    """An atomic block that ends in an error, which goes no further."""
    with contextlib.suppress(Undo), transaction.atomic(**options):
        yield
        raise Undo


def wait(event: threading.Event) -> None:
    """Wait for another session's step."""
    assert event.wait(LONG), "the other session never came so far"


def is_waiting_for_a_lock() -> bool:
    """Whether some session of this database waits for a row or transaction of another."""
    with connections["default"].cursor() as cursor:
        if connections["default"].vendor == "mysql":
            # InnoDB's own list of waits is only renewed while nobody reads it.
            cursor.execute(
                "SELECT count(*) FROM information_schema.processlist"
                " WHERE db = database() AND state IN ('Update', 'Updating') AND time_ms > 200"
            )
        else:
            cursor.execute(
                "SELECT count(*) FROM pg_stat_activity"
                " WHERE datname = current_database() AND wait_event_type = 'Lock'"
            )
        return bool(cursor.fetchone()[0])


def limit_lock_waits(seconds: int) -> None:
    """Let this session wait for a lock no longer than this."""
    with connections["default"].cursor() as cursor:
        if connections["default"].vendor == "mysql":
            cursor.execute("SET SESSION innodb_lock_wait_timeout = %s", [seconds])
        else:
            cursor.execute("SET lock_timeout = %s", [f"{seconds}s"])
