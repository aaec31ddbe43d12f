"""What a test leaves behind ends with it: its rows, and what it set in its session."""

import pytest
from django.contrib.auth.models import Permission
from django.db import connection
from psycopg import IsolationLevel

from celery_guard.models import Job, OutboxMessage
from tests.factories import make_job
from tests.kit import teardown

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.mariadb]


@pytest.fixture
def session():
    """The number of this process' session on PostgreSQL: elsewhere each test gets a new one."""
    if connection.vendor != "postgresql":
        pytest.skip("sessions are kept on PostgreSQL alone")
    return ask("SELECT pg_backend_pid()")


def ask(question: str) -> object:
    with connection.cursor() as cursor:
        cursor.execute(question)
        return cursor.fetchone()[0]


@pytest.mark.parametrize("jobs", [1, 300])
def test_no_row_stays(jobs):
    """Of a table that has grown as of a small one; what migrating made is still there."""
    for _ in range(jobs):
        make_job()
    teardown.empty(connection)
    assert (Job.objects.count(), OutboxMessage.objects.count()) == (0, 0)
    assert Permission.objects.exists()


def test_a_kept_session_is_as_new(session):
    """What was set in it, and what it listens to, is gone; it is the same one."""
    before = ask("SHOW lock_timeout")
    with connection.cursor() as cursor:
        cursor.execute("CREATE TEMPORARY TABLE mine (n int); LISTEN somebody")
        cursor.execute("SET lock_timeout = '7s'; SET default_transaction_read_only = on")
    teardown._renew(connection)
    assert ask("SELECT pg_backend_pid()") == session
    assert ask("SHOW lock_timeout") == before
    assert ask("SHOW default_transaction_read_only") == "off"
    assert ask("SHOW TimeZone") == "UTC"
    assert ask("SELECT to_regclass('pg_temp.mine')") is None
    assert ask("SELECT count(*) FROM pg_listening_channels()") == 0


def left_open():
    """A transaction that nobody ends."""
    connection.set_autocommit(False)


def made_stricter():
    """What the driver alone knows."""
    connection.connection.isolation_level = IsolationLevel.SERIALIZABLE


def cut():
    """By the server."""
    with pytest.raises(Exception, match="terminat"):
        ask("SELECT pg_terminate_backend(pg_backend_pid())")


@pytest.mark.parametrize("leave", [left_open, made_stricter, cut])
def test_a_session_that_cannot_be_as_new_is_closed(leave, session):
    """The next test opens one of its own."""
    leave()
    teardown._renew(connection)
    assert connection.connection is None
    assert ask("SELECT pg_backend_pid()") != session
