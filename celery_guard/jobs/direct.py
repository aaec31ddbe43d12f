"""PostgreSQL's statements past Django's cursor, which costs a call half of its processor time.

Statements go through the driver's own cursor, functions to the server without one, and the last
function of a transaction in one message with its COMMIT. What Django's cursor does besides is done
here too: its checks, its errors, and it does the work itself wherever somebody would see the
difference, because queries are logged or wrapped.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from django.db.backends.base.base import BaseDatabaseWrapper

if TYPE_CHECKING:
    import psycopg

_KEPT = "celery_guard_cursor"


def returned(
    connection: BaseDatabaseWrapper, statement: str, given: Sequence[Any]
) -> Sequence[Any] | None:
    """The first row that ``statement`` returns, None if there is none."""
    if _is_watched(connection):
        with connection.cursor() as seen:
            seen.execute(statement, given)
            row: Sequence[Any] | None = seen.fetchone()
        return row
    with connection.wrap_database_errors:
        # Binary: to read times and ids from text took longer than all the rest.
        return _cursor(connection).execute(statement, given, binary=True).fetchone()


def all_returned(
    connection: BaseDatabaseWrapper, statement: str, given: Mapping[str, Any]
) -> list[tuple[Any, ...]]:
    """All rows that ``statement`` returns."""
    if _is_watched(connection):
        with connection.cursor() as seen:
            seen.execute(statement, given)
            rows: list[tuple[Any, ...]] = seen.fetchall()
        return rows
    with connection.wrap_database_errors:
        return _cursor(connection).execute(statement, given).fetchall()


def changed(connection: BaseDatabaseWrapper, statement: str, given: Sequence[Any]) -> int:
    """How many rows ``statement`` changes."""
    if _is_watched(connection):
        with connection.cursor() as seen:
            seen.execute(statement, given)
            return int(seen.rowcount)
    with connection.wrap_database_errors:
        return int(_cursor(connection).execute(statement, given).rowcount)


@dataclasses.dataclass(frozen=True, slots=True)
class Function:
    """A function of the database: its call through a cursor, and as the server itself reads it."""

    through_cursor: str
    on_wire: bytes


def function(name: str, arguments: int) -> Function:
    """The function ``name``, which takes so many ``arguments`` and returns one value."""
    holes = ", ".join(["%s"] * arguments)
    places = ", ".join([f"${n}" for n in range(1, arguments + 1)])
    return Function(f"SELECT {name}({holes})", f"SELECT {name}({places})".encode())


def called(connection: BaseDatabaseWrapper, asked: Function, given: Sequence[Any]) -> Any:
    """What ``asked`` returns, as the driver reads it or as text; None for NULL.

    Even the driver's cursor costs as much as all else that a call does here: it looks at each value's
    type and rewrites the statement. Here values go as text, which the server reads as what
    the function takes. Waiting is the driver's own, so that a signal, a time-out and other
    greenlets have their turn.

    :param given: texts, bytes, booleans, numbers, times and UUIDs.
    """
    if not _is_watched(connection):
        driver = _ready(connection)
        values = [value.encode() if type(value) is str else _other(value) for value in given]
        binary = [type(value) is bytes for value in given]
        texts = b"".join(
            [v for v, b in zip(values, binary, strict=True) if not b and v is not None]
        )
        # A text would end at a NUL; the cursor says so instead.
        if _is_plain(driver) and b"\0" not in texts:
            with connection.wrap_database_errors:
                return _on_wire(driver, asked.on_wire, values, binary)
    row = returned(connection, asked.through_cursor, given)
    return row[0] if row else None


def _other(value: Any) -> bytes | None:
    if value is None or type(value) is bytes:
        return value
    return value.encode() if isinstance(value, str) else str(value).encode()


def _is_plain(driver: psycopg.Connection[Any]) -> bool:
    # Else the cursor begins the transaction, or puts the statement into a pipeline.
    state = driver.pgconn
    begun = driver.autocommit or state.transaction_status != _IDLE
    return begun and state.pipeline_status == _NO_PIPELINE


_IDLE, _NO_PIPELINE = 0, 0
_TUPLES = 2


def _on_wire(
    driver: psycopg.Connection[Any],
    statement: bytes,
    values: list[bytes | None],
    binary: list[bool],
) -> str | None:
    from psycopg import errors, generators

    with driver.lock:
        driver.pgconn.send_query_params(statement, values, param_formats=binary)
        (result,) = driver.wait(generators.execute(driver.pgconn))
    if result.status != _TUPLES:
        raise errors.error_from_result(result)
    found = result.get_value(0, 0)
    return None if found is None else found.decode()


def is_to_begin(connection: BaseDatabaseWrapper) -> bool:
    """Whether a plain BEGIN comes before the next statement, and nobody would see how it is sent."""
    driver: Any = connection.connection
    return (
        connection.vendor == "postgresql"
        and driver is not None
        and not driver.autocommit
        and driver.pgconn.transaction_status == _IDLE
        and driver.pgconn.pipeline_status == _NO_PIPELINE
        # Else more is said with it.
        and (driver.isolation_level, driver.read_only, driver.deferrable) == (None, None, None)
        and not _is_watched(connection)
    )


def commits_at_once(connection: BaseDatabaseWrapper) -> bool:
    """Whether the open transaction would be committed by the end of the block around this."""
    return (
        connection.vendor == "postgresql"
        and len(connection.atomic_blocks) == 1
        # Not so where somebody has turned autocommit off by hand.
        and connection.commit_on_exit
        and not connection.needs_rollback
        and not _is_watched(connection)
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
    from psycopg.errors import error_from_result
    from psycopg.generators import execute
    from psycopg.pq import Escaping, ExecStatus, TransactionStatus

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
    with raw.lock:
        raw.pgconn.send_query(message)
        last = raw.wait(execute(raw.pgconn))[-1]
    if last.status != ExecStatus.FATAL_ERROR:
        return None
    return error_from_result(last, encoding=raw.info.encoding)


def _is_watched(connection: BaseDatabaseWrapper) -> bool:
    # ``passive``: watches for statements that are not the guard's.
    others = (w for w in connection.execute_wrappers if not getattr(w, "passive", False))
    return connection.queries_logged or any(others)


def _ready(connection: BaseDatabaseWrapper) -> psycopg.Connection[Any]:
    connection.close_if_health_check_failed()
    connection.ensure_connection()
    connection.validate_thread_sharing()
    connection.validate_no_broken_transaction()
    driver: psycopg.Connection[Any] = connection.connection
    return driver


def _cursor(connection: BaseDatabaseWrapper) -> psycopg.Cursor[tuple[Any, ...]]:
    driver = _ready(connection)
    from psycopg import Cursor

    if connection.allow_thread_sharing:
        # Between a statement and its row, another thread could run its own on the same one.
        return Cursor(driver)
    # Making one costs a tenth of a call. It binds on the server, without names that a transaction
    # pooler would lose; a closed or exchanged connection gets another.
    kept: psycopg.Cursor[tuple[Any, ...]] | None = vars(connection).get(_KEPT)
    if kept is None or kept.connection is not driver:
        kept = vars(connection)[_KEPT] = Cursor(driver)
    return kept
