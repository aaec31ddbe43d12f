"""PostgreSQL's statements past Django's cursor, which costs a call half of its processor time.

Statements go through the driver's own cursor, functions to the server without one, and the last
function of a transaction in one message with its COMMIT. What Django's cursor does besides is done
here too: its checks, its errors, and it does the work itself wherever somebody would see the
difference, because queries are logged or wrapped.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.db.backends.base.base import BaseDatabaseWrapper

if TYPE_CHECKING:
    import psycopg
    from psycopg import pq

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
    connection: BaseDatabaseWrapper, statement: str, given: Mapping[str, Any] | Sequence[Any]
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
    return _function("SELECT", name, ["%s"] * arguments)


def function_of_rows(name: str, *kinds: str) -> Function:
    """The function ``name``, which takes arguments of those ``kinds`` and returns rows.

    As many names of SQL's types: the driver's cursor makes a small number smaller than that.
    """
    return _function("SELECT * FROM", name, [f"%s::{kind}" for kind in kinds])


def _function(verb: str, name: str, holes: Sequence[str]) -> Function:
    places = ", ".join([f"${n}" for n in range(1, len(holes) + 1)])
    call = f"{verb} {name}"
    return Function(f"{call}({', '.join(holes)})", f"{call}({places})".encode())


def called(connection: BaseDatabaseWrapper, asked: Function, given: Sequence[Any]) -> Any:
    """What ``asked`` returns, as the driver reads it or as text; None for NULL.

    Even the driver's cursor costs as much as all else that a call does here: it looks at each value's
    type and rewrites the statement. Here values go as text, which the server reads as what
    the function takes. Waiting is the driver's own, so that a signal, a time-out and other
    greenlets have their turn.

    :param given: texts, bytes, booleans, numbers, times and UUIDs.
    """
    if (result := _asked(connection, asked, given, _TEXT)) is None:
        row = returned(connection, asked.through_cursor, given)
        return row[0] if row else None
    found = result.get_value(0, 0)
    return None if found is None else found.decode()


def rows_of(
    connection: BaseDatabaseWrapper, asked: Function, given: Sequence[Any]
) -> list[tuple[Any, ...]]:
    """All rows that ``asked`` returns, called like :func:`called`: of the kinds in ``_READ`` only."""
    # Without time zones Django has its own way to read a time.
    result = _asked(connection, asked, given, _BINARY) if settings.USE_TZ else None
    if result is None:
        return all_returned(connection, asked.through_cursor, given)
    columns = [(n, _READ[result.ftype(n)]) for n in range(result.nfields)]
    return [
        tuple(
            [
                None if (value := result.get_value(row, n)) is None else read(value)
                for n, read in columns
            ]
        )
        for row in range(result.ntuples)
    ]


def _whole(value: bytes) -> int:
    return int.from_bytes(value, "big", signed=True)


def _moment(value: bytes) -> datetime:
    return _EPOCH + timedelta(microseconds=_whole(value))


_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
# By PostgreSQL's number of the type: boolean, bytea, three sizes of integers, text, varchar,
# timestamptz, uuid.
_READ: dict[int, Callable[[bytes], Any]] = {
    16: lambda value: value != b"\0",
    17: bytes,
    20: _whole,
    21: _whole,
    23: _whole,
    25: bytes.decode,
    1043: bytes.decode,
    1184: _moment,
    2950: lambda value: uuid.UUID(bytes=bytes(value)),
}


def _asked(
    connection: BaseDatabaseWrapper, asked: Function, given: Sequence[Any], form: int
) -> pq.abc.PGresult | None:
    if _is_watched(connection):
        return None
    driver = _ready(connection)
    values = [value.encode() if type(value) is str else _other(value) for value in given]
    binary = [type(value) is bytes for value in given]
    texts = b"".join([v for v, b in zip(values, binary, strict=True) if not b and v is not None])
    # A text would end at a NUL; the cursor says so instead.
    if not _is_plain(driver) or b"\0" in texts:
        return None
    with connection.wrap_database_errors:
        return _on_wire(driver, asked.on_wire, values, binary, form)


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
_TEXT, _BINARY = 0, 1


def _on_wire(
    driver: psycopg.Connection[Any],
    statement: bytes,
    values: list[bytes | None],
    binary: list[bool],
    form: int,
) -> pq.abc.PGresult:
    from psycopg import errors, generators

    result: pq.abc.PGresult
    with driver.lock:
        driver.pgconn.send_query_params(statement, values, param_formats=binary, result_format=form)
        (result,) = driver.wait(generators.execute(driver.pgconn))
    if result.status != _TUPLES:
        raise errors.error_from_result(result)
    return result


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
