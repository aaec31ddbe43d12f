"""What a body does to its connection's session, which the next job would find there.

Celery closes the connections around every task, and so undoes whatever a body has set. The
ledger's is kept around guarded tasks: it is closed after a body that changed its session. Noticed
is what passes Django's cursor, and the driver's own settings; not what a body says to the driver's
cursor, or has done by a function of the database.
"""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Callable, Iterator
from typing import Any

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from celery_guard.events import emit
from celery_guard.jobs import idling
from celery_guard.run.begin import begun_with
from celery_guard.run.worker import discard

_BEFORE = r"(?:\A|;)(?:\s|--[^\n]*\n|/\*.*?\*/)*"
_STATEMENT = re.compile(
    _BEFORE + r"(?:(?:set|reset|discard|use|listen|load|prepare|pragma|attach)\b|lock\s+tables\b"
    r"|declare\b.*\bwith\s+hold\b|create\s+(?:(?:or\s+replace|global|local)\s+)*temp(?:orary)?\b)",
    re.IGNORECASE | re.DOTALL,
)
# On PostgreSQL these end with the transaction.
_PASSING = re.compile(_BEFORE + r"set\s+(?:local|transaction|constraints)\b", re.I | re.S)
_CALL = re.compile(
    r"\b(?:pg_(?:try_)?advisory_lock(?:_shared)?|get_lock)\s*\("
    r"|\bset_config\s*\((?![^()]*,\s*(?:true|'t(?:rue)?')\s*\))",
    re.IGNORECASE,
)


@contextlib.contextmanager
def kept_clean(using: str) -> Iterator[None]:
    """Close the connection after the block, if the block changed its session.

    Not inside somebody's transaction (a test case, an eager call): it is theirs then.
    """
    connection = connections[using]
    if connection.in_atomic_block:
        yield
        return
    watch = _Watch(connection)
    connection.execute_wrappers.append(watch)
    try:
        yield
    finally:
        # As Django's own block does, of which this saves the making.
        connection.execute_wrappers.pop()
        idling.unbound(using)
        if watch.changed:
            emit("run.session_ended", logging.DEBUG, using=using)
            _end(connection)


class _Watch:
    # The guard's own statements may be run past it.
    passive = True

    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        self._connection = connection
        self._before = _driver_settings(connection)
        self._noticed = False

    def __call__(
        self, execute: Callable[..., Any], sql: Any, params: Any, many: bool, context: Any
    ) -> Any:
        self._noticed = self._noticed or _changes_session(self._connection, sql)
        return begun_with(self._connection, execute, sql, params, many, context)

    @property
    def changed(self) -> bool:
        return self._noticed or _driver_settings(self._connection) != self._before


def _changes_session(connection: BaseDatabaseWrapper, sql: Any) -> bool:
    """Whether a statement leaves something in the session that outlasts its transaction."""
    text = sql if isinstance(sql, str) else _text(connection, sql)
    starts = _STATEMENT.search if ";" in text else _STATEMENT.match
    if starts(text):
        only = connection.vendor == "postgresql" and ";" not in text
        return not (only and _PASSING.match(text))
    lower = text.lower()
    # Far quicker than the pattern, for all but a few.
    if "_lock" in lower or "set_config" in lower:
        return _CALL.search(text) is not None
    return False


def _text(connection: BaseDatabaseWrapper, sql: Any) -> str:
    if isinstance(sql, bytes):
        return sql.decode(errors="replace")
    # psycopg composes statements of objects.
    return str(sql.as_string(connection.connection)) if hasattr(sql, "as_string") else str(sql)


def _driver_settings(connection: BaseDatabaseWrapper) -> tuple[Any, ...]:
    raw: Any = connection.connection
    if raw is None or connection.vendor != "postgresql":
        return ()
    # Not autocommit: Django sets it in every transaction, so at the job's end.
    return (raw.isolation_level, raw.read_only, raw.deferrable)


def _end(connection: BaseDatabaseWrapper) -> None:
    # A pool hands on whatever it is given back open.
    if getattr(connection, "pool", None) and connection.connection is not None:
        connection.connection.close()
    discard(connection)
