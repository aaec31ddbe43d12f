"""The short way to PostgreSQL does what Django's cursor does, where somebody can see it."""

from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction
from django.db.transaction import TransactionManagementError
from django.test.utils import CaptureQueriesContext

from celery_guard.jobs import direct

pytestmark = pytest.mark.skipif("connection.vendor != 'postgresql'", reason="PostgreSQL's own")

ONE = "SELECT %s::int"


@pytest.mark.django_db
def test_values_come_back() -> None:
    """The first row, or None; the number of rows that were changed."""
    assert direct.returned(connection, ONE, (7,)) == (7,)
    assert direct.returned(connection, ONE + " LIMIT 0", (7,)) is None
    assert direct.changed(connection, "UPDATE celery_guard_job SET lane = %s", ("x",)) == 0


@pytest.mark.django_db
@pytest.mark.parametrize("run", [direct.returned, direct.changed])
def test_whoever_watches_queries_sees_them(run: Any) -> None:
    """A debug toolbar and ``execute_wrapper`` are told of every statement."""
    seen: list[str] = []

    def watch(execute: Any, sql: str, *rest: Any) -> Any:
        seen.append(sql)
        return execute(sql, *rest)

    with CaptureQueriesContext(connection) as logged:
        run(connection, ONE, (7,))
    with connection.execute_wrapper(watch):
        run(connection, ONE, (7,))
    run(connection, ONE, (7,))
    assert (len(logged), seen) == (1, [ONE])


@pytest.mark.django_db
def test_errors_are_djangos() -> None:
    """What a caller catches is the same, and a transaction that is given up takes no more."""
    insert = "INSERT INTO celery_guard_outboxmessage (envelope) VALUES (%s)"
    with pytest.raises(IntegrityError), transaction.atomic():
        direct.changed(connection, insert, ("{}",))
    with transaction.atomic():
        transaction.set_rollback(True)
        with pytest.raises(TransactionManagementError):
            direct.returned(connection, ONE, (7,))


@pytest.mark.django_db(transaction=True)
def test_a_new_connection_gets_a_new_cursor() -> None:
    """What was kept for a connection goes with it."""
    first = direct.returned(connection, "SELECT pg_backend_pid() + %s", (0,))
    connection.close()
    second = direct.returned(connection, "SELECT pg_backend_pid() + %s", (0,))
    assert first is not None
    assert second not in (None, first)


@pytest.mark.django_db
def test_threads_that_share_a_connection_share_no_cursor() -> None:
    """One must not read the row of the other's statement."""
    mine = direct._cursor(connection)
    assert direct._cursor(connection) is mine
    connection.inc_thread_sharing()
    try:
        theirs = [direct._cursor(connection) for _ in range(2)]
    finally:
        connection.dec_thread_sharing()
    assert len({id(cursor) for cursor in (mine, *theirs)}) == 3
