"""What ends with a test, and with the run: rows, and whoever still holds a test database."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connections
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
        tables = [
            quoted
            for name in connection.introspection.django_table_names(only_existing=True)
            if name not in STAYS and (quoted := connection.ops.quote_name(name))
        ]
        cursor.execute(
            " UNION ALL ".join(
                f"SELECT {number} WHERE EXISTS (SELECT 1 FROM {table})"
                for number, table in enumerate(tables)
            )
        )
        full = [tables[number] for (number,) in cursor.fetchall()]
        if not full:
            return
        if connection.vendor == "postgresql":
            cursor.execute(f"TRUNCATE {', '.join(full)} CASCADE")
        else:
            with connection.constraint_checks_disabled():
                for table in full:
                    cursor.execute(f"DELETE FROM {table}")
