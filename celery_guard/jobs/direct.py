"""PostgreSQL's statements on the driver's own cursor: half of what Django's costs a call.

What Django's does besides is done here too: its checks, its errors, and its own cursor wherever
somebody would see the difference, because queries are logged or wrapped.
"""

from __future__ import annotations

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
        return _cursor(connection).execute(statement, given).fetchone()


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


def _is_watched(connection: BaseDatabaseWrapper) -> bool:
    # ``passive``: watches for statements that are not the guard's.
    others = (w for w in connection.execute_wrappers if not getattr(w, "passive", False))
    return connection.queries_logged or any(others)


def _cursor(connection: BaseDatabaseWrapper) -> psycopg.Cursor[tuple[Any, ...]]:
    connection.close_if_health_check_failed()
    connection.ensure_connection()
    connection.validate_thread_sharing()
    connection.validate_no_broken_transaction()
    from psycopg import Cursor

    if connection.allow_thread_sharing:
        # Between a statement and its row, another thread could run its own on the same one.
        return Cursor(connection.connection)
    # Making one costs a tenth of a call. It binds on the server, without names that a transaction
    # pooler would lose; a closed or exchanged connection gets another.
    kept: psycopg.Cursor[tuple[Any, ...]] | None = vars(connection).get(_KEPT)
    if kept is None or kept.connection is not connection.connection:
        kept = vars(connection)[_KEPT] = Cursor(connection.connection)
    return kept
