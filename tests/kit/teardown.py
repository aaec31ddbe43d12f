"""What ends with a test, and with the run: rows, and whoever still holds a test database."""

import contextlib
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from django.db import DatabaseError, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.test import TransactionTestCase
from pytest_django import DjangoDbBlocker

HANG_UP = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid()
"""
STAYS = ("django_migrations", "django_content_type", "auth_permission")
"""What migrating made, and no test changes."""


@pytest.fixture(scope="session")
def django_db_setup(
    django_db_setup: None,
    django_db_blocker: DjangoDbBlocker,
) -> Iterator[None]:
    """pytest-django's databases with a rule more; at the end idle threads' connections are ended first.

    Threads of the package (the waker, a listener) keep a connection as long as their process lives.
    """
    # Models can't be imported before the servers are there.
    from tests.kit.shape import watch_shape

    with django_db_blocker.unblock():
        for connection in connections.all():
            watch_shape(connection)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(TransactionTestCase, "_fixture_teardown", _empty_all)
        patched.setattr(TransactionTestCase, "_should_reload_connections", _renew_all)
        yield
    with django_db_blocker.unblock():
        for alias in connections:
            if connections[alias].vendor == "postgresql":
                with connections[alias].cursor() as cursor:
                    cursor.execute(HANG_UP)


def _empty_all(case: Any) -> None:
    """Instead of Django's flush, which empties forty tables where a test has written into three."""
    for alias in case._databases_names(include_mirrors=False):
        empty(connections[alias])


def empty(connection: BaseDatabaseWrapper) -> None:
    """Delete all rows of the database, but for those that migrating made."""
    with connection.cursor() as cursor:
        tables, question = _tables(connection.alias)
        cursor.execute(question)
        full = [(tables[number], is_large) for number, is_large in cursor.fetchall()]
        if not full:
            return
        if connection.vendor == "mysql":
            with connection.constraint_checks_disabled():
                for table, _ in full:
                    cursor.execute(f"DELETE FROM {table}")
            return
        # To truncate makes new files for the table and each of its indexes. Keys are checked at the end.
        small = [f"DELETE FROM {table}" for table, is_large in full if not is_large]
        large = ", ".join(table for table, is_large in full if is_large)
        cursor.execute(";".join([*small, *([f"TRUNCATE {large} CASCADE"] if large else ())]))


@cache
def _tables(alias: str) -> tuple[list[str], str]:
    """The tables that tests write to, and a question for the numbers of those that are not empty.

    What is deleted stays in the file for a while: a table that has grown by it is a large one.
    """
    connection = connections[alias]
    names = connection.introspection.django_table_names(only_existing=True)
    tables = [connection.ops.quote_name(name) for name in names if name not in STAYS]
    large = "pg_relation_size('{}') > 65536" if connection.vendor == "postgresql" else "0"
    asked = [
        f"SELECT {number}, {large.format(table)} WHERE EXISTS (SELECT 1 FROM {table})"
        for number, table in enumerate(tables)
    ]
    return tables, " UNION ALL ".join(asked)


def _renew_all(case: Any) -> bool:
    """Instead of closing all connections, which each next test would have to open again."""
    for connection in connections.all(initialized_only=True):
        _renew(connection)
    return False


def _renew(connection: BaseDatabaseWrapper) -> None:
    """Make the session as it was when it was opened, or close it where that can't be done."""
    session: Any = connection.connection
    if session is None:
        return
    if connection.vendor == "postgresql" and not _is_changed(connection, session):
        with contextlib.suppress(DatabaseError):
            with connection.cursor() as cursor:
                cursor.execute("DISCARD ALL")
            connection.init_connection_state()
            connection.errors_occurred = False
            return
    connection.close()


def _is_changed(connection: Any, session: Any) -> bool:
    """Whether something is left that the server does not know of, or a transaction is open."""
    left = connection.in_atomic_block or connection.needs_rollback or connection.run_on_commit
    options = (session.isolation_level, session.read_only, session.deferrable)
    return bool(left or not session.autocommit or options != (None, None, None))
