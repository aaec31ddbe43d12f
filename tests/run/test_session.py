"""A body that changes the session of its connection: the next job gets another one."""

import secrets
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection, transaction
from psycopg import IsolationLevel
from psycopg.sql import SQL, Identifier

from celery_guard.jobs import direct
from celery_guard.run.session import kept_clean
from tests.run.delivery import deliver, job_of
from tests.run.marks import on_database
from tests.run.sessions import session
from tests.run.tasks import ACTIONS, in_body, in_steps

pytestmark = [*on_database, pytest.mark.mariadb, pytest.mark.usefixtures("scratch")]

POSTGRES = [
    "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE",
    "SET statement_timeout = 60000",
    "/* the shop's */ -- own\n set search_path TO public, pg_catalog",
    "SELECT 1; SET lock_timeout = 60000",
    "SET LOCAL lock_timeout = 60000; SET statement_timeout = 60000",
    "SELECT set_config('shop.tenant', '7', false)",
    "SELECT pg_advisory_lock(4711)",
    "SELECT pg_try_advisory_lock_shared(4711)",
    "CREATE TEMP TABLE seen (id int)",
    "PREPARE one AS SELECT 1",
    "LISTEN shop",
    "DECLARE rows CURSOR WITH HOLD FOR SELECT 1",
]
MARIADB = [
    "SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE",
    "SET LOCAL sql_mode = ''",
    "SET @tenant = 7",
    "SELECT GET_LOCK('shop', 1)",
    "CREATE TEMPORARY TABLE seen (id int)",
    "PREPARE one FROM 'SELECT 1'",
]
# With these the end of the job could not be written down.
POISON = {
    "postgresql": "SET search_path TO pg_catalog",
    "mysql": "SET SESSION TRANSACTION READ ONLY",
}
PASSING = {"postgresql": "SET statement_timeout = 0", "mysql": "SET @tenant = 7"}
HARMLESS = [
    "SELECT name FROM shop_mark WHERE name = 'set_config' FOR UPDATE",
    "UPDATE shop_mark\nSET name = name",
]
HARMLESS_ON_POSTGRES = [
    *HARMLESS,
    "SET LOCAL statement_timeout = 60000",
    "SET CONSTRAINTS ALL DEFERRED",
    "SELECT set_config('shop.tenant', '7', true)",
    "SELECT pg_advisory_xact_lock(4711)",
    "LOCK TABLE shop_mark IN SHARE MODE",
]


def _says(statement: Any) -> Callable[[], None]:
    def say() -> None:
        with connection.cursor() as cursor:
            cursor.execute(statement)

    return say


def _sets(name: str, value: Any) -> Callable[[], None]:
    return lambda: setattr(connection.connection, name, value)


def _keeps(action: Callable[[], None], task: Any = in_body, at: str = "") -> bool:
    name = secrets.token_hex(4)
    ACTIONS[f"{name}{at}"] = action
    before, job = session(), job_of(task.delay(name))
    deliver(job)
    job.refresh_from_db()
    assert job.state == "succeeded"
    return session() == before


def _in_steps_keeps(action: Callable[[], None]) -> bool:
    return _keeps(action, in_steps, ".before")


def test_a_session_that_a_body_changed_is_closed() -> None:
    """Whatever outlasts the transaction ends with the job, as around Celery's own tasks."""
    statements = POSTGRES if connection.vendor == "postgresql" else MARIADB
    assert [one for one in statements if _keeps(_says(one))] == []


def test_a_session_that_no_body_changed_is_kept() -> None:
    """What ends with its transaction, and what only looks like more, costs no connection."""
    statements = HARMLESS_ON_POSTGRES if connection.vendor == "postgresql" else HARMLESS
    assert [one for one in statements if not _keeps(_says(one))] == []


def test_the_drivers_own_settings_are_the_sessions_too() -> None:
    """An isolation level that a body gives the driver is not the next job's."""
    if connection.vendor == "mysql":
        pytest.skip("MariaDB's drivers have none that outlast a transaction")
    assert not _in_steps_keeps(_sets("isolation_level", IsolationLevel.SERIALIZABLE))
    assert not _in_steps_keeps(_sets("read_only", False))
    assert not _in_steps_keeps(_says(SQL("SET {} = 60000").format(Identifier("lock_timeout"))))
    assert _in_steps_keeps(_says("SELECT 1"))


@pytest.mark.parametrize(("task", "at"), [(in_body, ""), (in_steps, ".before")])
def test_a_body_that_fails_leaves_no_session_behind(task: Any, at: str) -> None:
    """Its end is written down on another connection, whatever it had set on its own."""
    name = secrets.token_hex(4)
    set_it = _says(POISON[connection.vendor])

    def fail() -> None:
        set_it()
        raise ValueError(name)

    ACTIONS[f"{name}{at}"] = fail
    before, job = session(), job_of(task.delay(name))
    deliver(job)
    job.refresh_from_db()
    assert (job.state, job.starts) == ("failed", 1)
    assert session() != before


def test_the_guards_own_statements_are_not_looked_at() -> None:
    """They keep the short way to the driver while a body's are watched."""
    with kept_clean("default"):
        assert connection.execute_wrappers
        assert not direct.is_watched(connection)


def test_somebodys_transaction_keeps_its_session() -> None:
    """A test case, or a call in a request's transaction, is not torn from its connection."""
    with transaction.atomic():
        before = session()
        with kept_clean("default"):
            _says(PASSING[connection.vendor])()
        assert session() == before
