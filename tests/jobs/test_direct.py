"""The short way to PostgreSQL does what Django's cursor does, where somebody can see it."""

import signal
import uuid
from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import (
    DataError,
    IntegrityError,
    ProgrammingError,
    connection,
    connections,
    transaction,
)
from django.db.transaction import TransactionManagementError
from django.test.utils import CaptureQueriesContext

from celery_guard.conf import Mode
from celery_guard.jobs import begin_and_commit, direct, on_wire
from celery_guard.jobs.clock import DatabaseNow
from celery_guard.outbox.models import OutboxMessage

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


SUM = on_wire.Function("SELECT %s::int + %s::int", b"SELECT $1::int + $2::int")
TEXT = on_wire.Function("SELECT %s::text", b"SELECT $1::text")


@pytest.mark.django_db
def test_a_function_is_called_as_by_a_cursor() -> None:
    """Values of every kind that the outbox knows arrive as what they are."""
    assert int(on_wire.called(connection, SUM, (3, 4))) == 7
    assert on_wire.called(connection, TEXT, (None,)) is None
    when = datetime(2026, 2, 3, 4, 5, 6, 789, UTC)
    for kind, value in [
        ("boolean", True),
        ("double precision", 1.25e-7),
        ("timestamptz", when),
        ("uuid", uuid.UUID(int=5)),
        ("bytea", b"\x00\xff'\\"),
        ("text", "é☃'\\%s $1"),
        ("text", Mode.ON),
    ]:
        by_wire = f"SELECT ($1::{kind})::text".encode()
        asked = on_wire.Function(f"SELECT (%s::{kind})::text", by_wire)
        with CaptureQueriesContext(connection):
            expected = on_wire.called(connection, asked, (value,))
        assert on_wire.called(connection, asked, (value,)) == expected


@pytest.mark.django_db
def test_rows_of_a_function_are_read_as_by_a_cursor(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every kind of column that the ledger's functions return, and NULL, for no row and for two."""
    columns = (
        "true AS a, false AS b, '\\x00ff'::bytea AS c, 7::smallint AS d, -2::int AS e, "
        "9007199254740993 AS f, 'é☃'::text AS g, ''::varchar AS h, NULL::uuid AS i, "
        "'00000000-0000-0000-0000-000000000005'::uuid AS j, "
        "'1999-12-31 23:59:59.000001+00'::timestamptz AS k, '2026-02-03 04:05:06+05'::timestamptz AS l"
    )
    query = f"SELECT {columns} FROM generate_series(1, %s::int)"
    asked = on_wire.Function(query, query.replace("%s", "$1").encode())
    for count in (0, 2):
        with CaptureQueriesContext(connection) as logged:
            expected = on_wire.rows_of(connection, asked, (count,))
        assert on_wire.rows_of(connection, asked, (count,)) == expected
        assert (len(logged), len(expected)) == (1, count)
    settings.USE_TZ = False
    monkeypatch.setattr(on_wire, "all_returned", lambda *_: ["as Django reads it"])
    assert on_wire.rows_of(connection, asked, (2,)) == ["as Django reads it"]


@pytest.mark.django_db
def test_whoever_watches_calls_sees_them() -> None:
    """Then they go through Django's cursor."""
    with CaptureQueriesContext(connection) as logged:
        assert on_wire.called(connection, SUM, (3, 4)) == 7
    assert len(logged) == 1


@pytest.mark.django_db
def test_a_text_is_not_cut_short() -> None:
    """One with a NUL is refused, as by a cursor."""
    with pytest.raises((ValueError, DataError)), transaction.atomic():
        on_wire.called(connection, TEXT, ("a\x00b",))


@pytest.mark.django_db(transaction=True)
def test_a_call_belongs_to_the_transaction() -> None:
    """Also where it is the first statement, with which the driver begins."""
    insert = on_wire.Function(
        "INSERT INTO celery_guard_outboxmessage (body, envelope, created_at) "
        "VALUES ('', %s, now()) RETURNING id",
        b"INSERT INTO celery_guard_outboxmessage (body, envelope, created_at) "
        b"VALUES ('', $1, now()) RETURNING id",
    )
    with transaction.atomic():
        assert on_wire.called(connection, insert, ("{}",)) is not None
        transaction.set_rollback(True)
    assert not OutboxMessage.objects.exists()
    assert on_wire.called(connection, insert, ("{}",)) is not None
    assert OutboxMessage.objects.count() == 1


@pytest.mark.timeout(30)
@pytest.mark.django_db(transaction=True)
def test_a_call_in_a_pipeline_goes_through_the_cursor() -> None:
    """Elsewhere the driver would mistake the answers of the statements before for the call's own."""
    connection.ensure_connection()
    driver: Any = connection.connection
    with driver.pipeline():
        driver.execute("SELECT 1")
        assert int(on_wire.called(connection, SUM, (3, 4))) == 7
    assert int(on_wire.called(connection, SUM, (5, 6))) == 11


@pytest.mark.django_db
def test_errors_of_a_call_are_djangos() -> None:
    """With what the server said, as the driver's own."""
    divide = on_wire.Function("SELECT 1 / %s::int", b"SELECT 1 / $1::int")
    with pytest.raises(DataError, match="division by zero") as told, transaction.atomic():
        on_wire.called(connection, divide, (0,))
    assert getattr(told.value.__cause__, "sqlstate", None) == "22012"
    with transaction.atomic():
        transaction.set_rollback(True)
        with pytest.raises(TransactionManagementError):
            on_wire.called(connection, SUM, (1, 2))


@pytest.mark.django_db(transaction=True)
def test_a_call_that_waits_can_be_stopped() -> None:
    """A signal's handler is heard meanwhile, and the connection is good for another."""
    sleep = on_wire.Function("SELECT pg_sleep(%s)", b"SELECT pg_sleep($1::float8)")

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        with pytest.raises(KeyboardInterrupt):
            on_wire.called(connection, sleep, (60,))
    finally:
        signal.signal(signal.SIGALRM, before)
    assert int(on_wire.called(connection, SUM, (3, 4))) == 7


_ACT = """CREATE OR REPLACE FUNCTION pg_temp.act(given text, number bigint, id uuid) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF given IS NULL THEN RAISE EXCEPTION 'no' USING ERRCODE = 'CGL01'; END IF;
    INSERT INTO celery_guard_outboxmessage (body, envelope, created_at)
    VALUES ('', concat(given, number, id), now());
END $$"""
SOME_ID = uuid.UUID(int=7)


def _act(given: str | None) -> bool:
    return begin_and_commit.committed_with(
        connection, b"pg_temp.act", (given, 5, SOME_ID), unless="CGL01"
    )


def _write(envelope: str) -> None:
    OutboxMessage.objects.create(body=b"", envelope=envelope, created_at=DatabaseNow())


def _envelopes() -> list[str]:
    return sorted(OutboxMessage.objects.values_list("envelope", flat=True))


@pytest.fixture
def act() -> None:
    with connection.cursor() as cursor:
        cursor.execute(_ACT)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    "given", ["plain", "it's", "back\\slash", "ünïcode %s $1", '{"a": "\\u0000"}']
)
def test_the_last_statement_brings_its_commit(act: None, given: str) -> None:
    """It is committed when the call returns, with all before it, and the block's hooks run once."""
    ran: list[int] = []
    with transaction.atomic():
        transaction.on_commit(lambda: ran.append(1))
        _write("before")
        assert begin_and_commit.commits_at_once(connection)
        assert _act(given)
        with connections["default"].copy().cursor() as other:
            other.execute("SELECT count(*) FROM celery_guard_outboxmessage")
            assert other.fetchone() == (2,)
            other.connection.close()
        assert ran == []
    assert ran == [1]
    assert _envelopes() == sorted(["before", f"{given}5{SOME_ID}"])
    with transaction.atomic():
        assert _act("alone"), "a transaction that has asked for nothing yet"
    assert len(_envelopes()) == 3


@pytest.mark.django_db(transaction=True)
def test_what_is_refused_is_not_committed(act: None) -> None:
    """The error that was expected keeps the COMMIT behind it from happening; others are Django's."""

    class Refused(Exception):
        pass

    def refused() -> None:
        with transaction.atomic():
            _write("before")
            assert not _act(None)
            raise Refused

    with pytest.raises(Refused):
        refused()
    with pytest.raises(ProgrammingError), transaction.atomic():
        begin_and_commit.committed_with(connection, b"pg_temp.no_such", (), unless="CGL01")
    assert _envelopes() == []


@pytest.mark.django_db(transaction=True)
def test_a_block_that_will_not_commit_is_not_committed(act: None) -> None:
    """Inside another block, without autocommit, given up, or seen by somebody: not at once."""
    with transaction.atomic():
        with transaction.atomic():
            assert not begin_and_commit.commits_at_once(connection)
        with CaptureQueriesContext(connection):
            assert not begin_and_commit.commits_at_once(connection)
        transaction.set_rollback(True)
        assert not begin_and_commit.commits_at_once(connection)
    assert not begin_and_commit.commits_at_once(connection)
    transaction.set_autocommit(False)
    try:
        with transaction.atomic():
            assert not begin_and_commit.commits_at_once(connection)
    finally:
        transaction.rollback()
        transaction.set_autocommit(True)
