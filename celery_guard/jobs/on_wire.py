"""Functions of PostgreSQL called without any cursor.

Even the driver's cursor costs as much as all else that such a call does: it looks at each value's type
and rewrites the statement. Here values go as text, which the server reads as what the function takes.
Waiting is the driver's own, so that a signal, a time-out and other greenlets have their turn.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.db.backends.base.base import BaseDatabaseWrapper

from celery_guard.jobs.direct import all_returned, is_watched, ready, returned

if TYPE_CHECKING:
    import psycopg
    from psycopg import pq

IDLE, NO_PIPELINE = 0, 0
"""What the driver's ``transaction_status`` and ``pipeline_status`` are while nothing is begun."""


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
    if is_watched(connection):
        return None
    driver = ready(connection)
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
    begun = driver.autocommit or state.transaction_status != IDLE
    return begun and state.pipeline_status == NO_PIPELINE


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
