"""A transaction's BEGIN and COMMIT in one message with the statements beside them.

The driver sends each by itself and waits for it, so the server is asked more often than it has to be.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from django.db.backends.base.base import BaseDatabaseWrapper

from celery_guard.jobs.direct import is_watched
from celery_guard.jobs.on_wire import IDLE, NO_PIPELINE

if TYPE_CHECKING:
    import psycopg


def is_to_begin(connection: BaseDatabaseWrapper) -> bool:
    """Whether a plain BEGIN comes before the next statement, and nobody would see how it is sent."""
    driver: Any = connection.connection
    return (
        connection.vendor == "postgresql"
        and driver is not None
        and not driver.autocommit
        and driver.pgconn.transaction_status == IDLE
        and driver.pgconn.pipeline_status == NO_PIPELINE
        # Else more is said with it.
        and (driver.isolation_level, driver.read_only, driver.deferrable) == (None, None, None)
        and not is_watched(connection)
    )


def begin_with(connection: BaseDatabaseWrapper, statement: str) -> None:
    """Begin the transaction, and carry out ``statement`` in the same message: where :func:`is_to_begin`."""
    with connection.wrap_database_errors:
        failed = _answered(connection.connection, b"BEGIN; " + statement.encode())
        if failed is not None:
            raise failed


def commits_at_once(connection: BaseDatabaseWrapper) -> bool:
    """Whether the open transaction would be committed by the end of the block around this."""
    return (
        connection.vendor == "postgresql"
        and len(connection.atomic_blocks) == 1
        # Not so where somebody has turned autocommit off by hand.
        and connection.commit_on_exit
        and not connection.needs_rollback
        and not is_watched(connection)
    )


def committed_with(
    connection: BaseDatabaseWrapper,
    name: bytes,
    given: Sequence[str | int | uuid.UUID | None],
    *,
    unless: str,
) -> bool:
    """Call the function ``name`` as the last of the open transaction, with its COMMIT in the same message.

    Only where :func:`commits_at_once`; the block's own commit then finds nothing left to do. False
    when it raised the SQLSTATE ``unless``: what follows an error in a message is not
    carried out, so nothing is committed, and the block must be left by an exception.
    """
    if connection.connection is None:
        # It was closed inside the block, which Django will not have.
        connection.ensure_connection()
    with connection.wrap_database_errors:
        failed = _sent(connection.connection, name, given)
        if failed is None:
            return True
        if failed.diag.sqlstate == unless:
            return False
        raise failed


def _sent(raw: Any, name: bytes, given: Sequence[Any]) -> psycopg.Error | None:
    from psycopg.pq import Escaping, TransactionStatus

    def literal(value: str | int | uuid.UUID | None) -> bytes:
        if value is None:
            return b"NULL"
        if isinstance(value, int):
            return b"%d" % value
        if isinstance(value, uuid.UUID):
            return b"'%b'" % value.hex.encode()
        return Escaping(raw.pgconn).escape_literal(value.encode(raw.info.encoding))

    # The protocol takes several statements in a message only without values of their own.
    message = b"SELECT %b(%b)" % (name, b", ".join([literal(value) for value in given]))
    # A body that asked the database for nothing has not begun its transaction.
    if raw.pgconn.transaction_status != TransactionStatus.IDLE:
        message += b"; COMMIT"
    return _answered(raw, message)


def _answered(raw: Any, message: bytes) -> psycopg.Error | None:
    from psycopg.errors import error_from_result
    from psycopg.generators import execute
    from psycopg.pq import ExecStatus

    with raw.lock:
        raw.pgconn.send_query(message)
        last = raw.wait(execute(raw.pgconn))[-1]
    if last.status != ExecStatus.FATAL_ERROR:
        return None
    return error_from_result(last, encoding=raw.info.encoding)
