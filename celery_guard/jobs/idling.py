"""A transaction of ours that stands still is ended by the server: whoever opened it may be lost.

From a host that vanished the server hears nothing, by default for hours. What its transaction has
locked stays locked meanwhile, and whoever works through a list passes over it as over somebody alive.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator

from django.db import DatabaseError, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from celery_guard.jobs import begin_and_commit, direct

SECONDS = 60.0
"""Longest pause between two statements of a transaction that has locked jobs; a longer lease counts more."""

_BOUNDED = "celery_guard_idling"
# A shorter bound of the site's own stays. It ends with the transaction, so a pooler may come between.
_POSTGRESQL = (
    "SELECT set_config('idle_in_transaction_session_timeout', '{ms}ms', true)"
    " WHERE current_setting('idle_in_transaction_session_timeout')::interval"
    " NOT BETWEEN '1ms' AND '{ms}ms'"
)
# Of the session there, so it is taken back.
_MARIADB = (
    "SET @celery_guard_idling = @@SESSION.idle_transaction_timeout, SESSION idle_transaction_timeout ="
    " IF(@@SESSION.idle_transaction_timeout BETWEEN 1 AND {s}, @@SESSION.idle_transaction_timeout, {s})"
)
_MARIADB_BACK = "SET SESSION idle_transaction_timeout = @celery_guard_idling"


@contextlib.contextmanager
def brief(using: str) -> Iterator[None]:
    """A transaction that the server ends when it stands still; only for statements of the guard's own."""
    try:
        with transaction.atomic(using=using):
            end_when_idle(using)
            yield
    finally:
        unbound(using)


def end_when_idle(using: str, lease: float = 0.0) -> None:
    """Let the server end the open transaction when it stands still, to be called before it locks a job.

    Not inside somebody else's transaction, which goes on when ours is over. :func:`unbound` must be
    called behind the transaction.

    :param lease: of the job that is locked, in seconds: as long as its worker may be silent.
    """
    connection = connections[using]
    if len(connection.atomic_blocks) != 1 or not connection.commit_on_exit:
        return
    seconds = max(lease, SECONDS)
    if connection.vendor == "postgresql":
        statement = _POSTGRESQL.format(ms=math.ceil(seconds * 1000))
        if begin_and_commit.is_to_begin(connection):
            begin_and_commit.begin_with(connection, statement)
        else:
            direct.returned(connection, statement, ())
    elif _is_mariadb(connection) and _driver_of(connection) is None:
        _say(connection, _MARIADB.format(s=math.ceil(seconds)))
        vars(connection)[_BOUNDED] = connection.connection


def unbound(using: str) -> None:
    """Give the session its own bound back, where it had to be lent one."""
    connection = connections[using]
    if (driver := _driver_of(connection)) is not None:
        vars(connection)[_BOUNDED] = None
        if driver is connection.connection and not connection.in_atomic_block:
            try:
                _say(connection, _MARIADB_BACK)
            except DatabaseError:
                # It is gone, or has to go: nobody else's transaction may be under this bound.
                connection.close()


def _driver_of(connection: BaseDatabaseWrapper) -> object:
    return vars(connection).get(_BOUNDED)


def _is_mariadb(connection: BaseDatabaseWrapper) -> bool:
    return connection.vendor == "mysql" and bool(getattr(connection, "mysql_is_mariadb", False))


def _say(connection: BaseDatabaseWrapper, statement: str) -> None:
    # Past Django's cursor: it is no change of the session that a body has made.
    connection.ensure_connection()
    with connection.wrap_database_errors, connection.connection.cursor() as cursor:
        cursor.execute(statement)
