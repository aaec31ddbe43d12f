"""PostgreSQL's statements past Django's cursor, which costs a call half of its processor time.

They go through the driver's own cursor; :mod:`celery_guard.jobs.on_wire` calls functions without one, and
:mod:`celery_guard.jobs.begin_and_commit` saves a transaction's own round trips. What Django's cursor does besides is done
here too: its checks, its errors, and it does the work itself wherever somebody would see the
difference, because queries are logged or wrapped.
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
    if is_watched(connection):
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
    if is_watched(connection):
        with connection.cursor() as seen:
            seen.execute(statement, given)
            rows: list[tuple[Any, ...]] = seen.fetchall()
        return rows
    with connection.wrap_database_errors:
        return _cursor(connection).execute(statement, given).fetchall()


def changed(connection: BaseDatabaseWrapper, statement: str, given: Sequence[Any]) -> int:
    """How many rows ``statement`` changes."""
    if is_watched(connection):
        with connection.cursor() as seen:
            seen.execute(statement, given)
            return int(seen.rowcount)
    with connection.wrap_database_errors:
        return int(_cursor(connection).execute(statement, given).rowcount)


def is_watched(connection: BaseDatabaseWrapper) -> bool:
    """Whether somebody sees each statement that goes through Django's cursor."""
    # ``passive``: watches for statements that are not the guard's.
    others = (w for w in connection.execute_wrappers if not getattr(w, "passive", False))
    return connection.queries_logged or any(others)


def ready(connection: BaseDatabaseWrapper) -> psycopg.Connection[Any]:
    """The driver's connection, after what Django looks at before each statement."""
    connection.close_if_health_check_failed()
    connection.ensure_connection()
    connection.validate_thread_sharing()
    connection.validate_no_broken_transaction()
    driver: psycopg.Connection[Any] = connection.connection
    return driver


def _cursor(connection: BaseDatabaseWrapper) -> psycopg.Cursor[tuple[Any, ...]]:
    driver = ready(connection)
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
