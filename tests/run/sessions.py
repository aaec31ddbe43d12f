"""Database sessions: which one this is, and ending one from outside."""

import threading
from collections.abc import Callable

from django.db import connection, connections


def session() -> int:
    """The server's number for this connection's session."""
    postgres = connection.vendor == "postgresql"
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()" if postgres else "SELECT CONNECTION_ID()")
        return int(cursor.fetchone()[0])


def end_session(number: int) -> None:
    """End a session, as a restarted server or an administrator does."""
    postgres = connection.vendor == "postgresql"
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s)" if postgres else "KILL %s", [number])


def elsewhere(action: Callable[[], object]) -> Callable[[], None]:
    """`action` on another thread, so on another connection, and waited for."""

    def act() -> None:
        try:
            action()
        finally:
            connections.close_all()

    def run() -> None:
        thread = threading.Thread(target=act)
        thread.start()
        thread.join()

    return run
