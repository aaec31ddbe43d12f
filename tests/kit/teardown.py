"""The end of a run: test databases go even when somebody still holds a connection."""

from collections.abc import Iterator

import pytest
from django.db import connections
from pytest_django import DjangoDbBlocker

HANG_UP = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid()
"""


@pytest.fixture(scope="session")
def django_db_setup(
    django_db_setup: None,
    django_db_blocker: DjangoDbBlocker,
) -> Iterator[None]:
    """pytest-django's databases; at the end the connections of idle threads are ended first.

    Threads of the package (the waker, a listener) keep a connection as long as their process lives.
    """
    yield
    with django_db_blocker.unblock():
        for alias in connections:
            if connections[alias].vendor == "postgresql":
                with connections[alias].cursor() as cursor:
                    cursor.execute(HANG_UP)
