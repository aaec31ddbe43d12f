"""A transaction whose statements may not run for ever."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from django.db import DatabaseError, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

QUERY_CANCELED = "57014"


@contextlib.contextmanager
def bounded(using: str, seconds: float) -> Iterator[None]:
    """A transaction in which PostgreSQL stops any statement after ``seconds``.

    Other databases have no such bound without session state; what runs here is bounded by its
    own LIMIT in any case. See :func:`timed_out` for the error.
    """
    connection = connections[using]
    nested = connection.in_atomic_block
    with transaction.atomic(using=using):
        if connection.vendor != "postgresql":
            yield
            return
        before = _timeout(connection) if nested else ""
        _set_timeout(connection, f"{int(seconds * 1000)}ms")
        yield
        if nested:
            # Local to the outermost transaction, which is the caller's.
            _set_timeout(connection, before)


def timed_out(error: DatabaseError) -> bool:
    """Whether ``error`` says that a statement was stopped for running too long."""
    return getattr(error.__cause__, "sqlstate", "") == QUERY_CANCELED


def _timeout(connection: BaseDatabaseWrapper) -> str:
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('statement_timeout')")
        return str(cursor.fetchone()[0])


def _set_timeout(connection: BaseDatabaseWrapper, value: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT set_config('statement_timeout', %s, true)", [value])
