"""A body's first statement brings the BEGIN of its transaction along."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import ProgrammingError, connection, transaction
from django.test.utils import CaptureQueriesContext
from psycopg import IsolationLevel
from psycopg.sql import SQL

from celery_guard.outbox.models import OutboxMessage
from celery_guard.run.session import kept_clean
from tests.run.sessions import session

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif("connection.vendor != 'postgresql'", reason="PostgreSQL's own"),
]
ASK = "SELECT current_query()"
WRITE = (
    "INSERT INTO celery_guard_outboxmessage (body, envelope, created_at) "
    "VALUES ('', %s, now()) RETURNING envelope"
)


@pytest.fixture
def body() -> Iterator[None]:
    """As around a body; but its transaction is the test's to begin."""
    with kept_clean("default"):
        yield


def _asked(sql: Any = ASK) -> str:
    """The message in which ``sql`` came to the server."""
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return str(cursor.fetchone()[0])


def test_it_is_one_message(body: None) -> None:
    """Only of the first statement, and of each transaction anew."""
    connection.ensure_connection()
    noticed: list[Any] = []
    connection.connection.add_notice_handler(noticed.append)
    for _ in range(2):
        with transaction.atomic():
            assert _asked() == f"BEGIN; {ASK}"
            assert connection.connection.autocommit is False
            assert _asked() == ASK
            with transaction.atomic():
                assert _asked() == ASK
    assert _asked() == ASK, "no transaction, no BEGIN"
    assert noticed == [], "a second BEGIN would be warned of"


def test_the_cursor_shows_the_statement(body: None) -> None:
    """Its rows, their number and their names, not those of the BEGIN."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(WRITE, ["100 % of it"])
        assert (cursor.rowcount, cursor.description[0].name) == (1, "envelope")
        assert cursor.fetchall() == [("100 % of it",)]
        assert cursor.nextset() is None


def test_it_belongs_to_the_transaction(body: None) -> None:
    """Rolled back with it, committed with it, and seen by nobody before."""
    for keep in (False, True):
        with transaction.atomic():
            OutboxMessage.objects.bulk_create([_message()])
            with connection.copy().cursor() as other:
                other.execute("SELECT count(*) FROM celery_guard_outboxmessage")
                assert other.fetchone() == (0,)
                other.connection.close()
            transaction.set_rollback(not keep)
        assert OutboxMessage.objects.count() == keep


def test_one_that_fails_ends_the_transaction(body: None) -> None:
    """With the error that it would have been, on a connection that stays good."""
    before = session()
    with pytest.raises(ProgrammingError, match="no_such"), transaction.atomic():
        _asked("SELECT * FROM no_such")
    with transaction.atomic():
        assert _asked() == f"BEGIN; {ASK}"
    assert session() == before


def test_a_nested_block_that_comes_first_can_be_undone_alone(body: None) -> None:
    """Its savepoint is the first statement then."""
    with transaction.atomic():
        with transaction.atomic():
            OutboxMessage.objects.bulk_create([_message()])
            transaction.set_rollback(True)
        OutboxMessage.objects.bulk_create([_message(), _message()])
    assert OutboxMessage.objects.count() == 2


def test_a_cursor_of_the_server_ends_with_the_transaction(body: None) -> None:
    """One that is read in pieces is not made to outlast it."""
    OutboxMessage.objects.bulk_create([_message() for _ in range(3)])
    before = session()
    with kept_clean("default"), transaction.atomic():
        assert len(list(OutboxMessage.objects.iterator(chunk_size=1))) == 3
        assert connection.connection.autocommit is False
    with kept_clean("default"), transaction.atomic():
        _asked()
        assert len(list(OutboxMessage.objects.iterator(chunk_size=1))) == 3
    assert session() == before


def test_it_stays_two_where_it_would_be_seen_or_say_more(body: None) -> None:
    """Logged queries, statements in parts, many at once, another isolation."""
    with CaptureQueriesContext(connection) as logged, transaction.atomic():
        assert _asked() == ASK
    assert ASK in [query["sql"] for query in logged]
    with transaction.atomic():
        assert _asked(SQL(ASK)) == ASK
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.executemany(WRITE, [["one"], ["two"]])
    assert OutboxMessage.objects.count() == 2
    connection.connection.isolation_level = IsolationLevel.SERIALIZABLE
    try:
        with transaction.atomic():
            assert _asked("SHOW transaction_isolation") == "serializable"
    finally:
        connection.connection.isolation_level = None


def test_it_is_the_bodys_alone() -> None:
    """Outside of bodies nothing is changed."""
    with transaction.atomic():
        assert _asked() == ASK


def _message() -> OutboxMessage:
    from celery_guard.jobs.clock import DatabaseNow

    return OutboxMessage(body=b"", envelope="{}", created_at=DatabaseNow())
