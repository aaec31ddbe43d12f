"""Writes that need not wait for the disk: theirs alone, and nobody else's."""

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from django.db import connection, transaction

from celery_guard.jobs.clock import database_time
from celery_guard.jobs.lazily import lazily, lazy_transaction
from celery_guard.models import Counter, Duty, LaneLead
from celery_guard.relay import duties
from celery_guard.relay import lead as leads
from celery_guard.relay.duties import Rota, duty
from celery_guard.watch import beside

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif("connection.vendor != 'postgresql'", reason="PostgreSQL's own"),
]


@contextmanager
def unknown_to_django() -> Iterator[None]:
    """A transaction as a statement has one by itself, but open to be looked into."""
    with connection.cursor() as cursor:
        cursor.execute("BEGIN")
        try:
            yield
        finally:
            cursor.execute("ROLLBACK")


def waits() -> bool:
    """Whether a commit here and now would wait for the disk."""
    with connection.cursor() as cursor:
        cursor.execute("SHOW synchronous_commit")
        return cursor.fetchone() == ("on",)


def _lead(owner: uuid.UUID) -> None:
    LaneLead.objects.create(lane="high", owner=owner, term=1)
    with unknown_to_django():
        leads.renew("default", owner, 60)
        assert not waits()


def _beside(_: uuid.UUID) -> None:
    topic = beside.Topic(name="topic", names=("n",))
    seen = []

    def watch(execute, sql, params, *rest):
        found = execute(sql, params, *rest)
        if sql.startswith(("INSERT", "DELETE")):
            seen.append(waits())
        return found

    with connection.execute_wrapper(watch):
        beside.keep("default", topic, {"n": {"p": 1}}, database_time("default"))
    assert seen == [False, False]


@pytest.mark.parametrize("write", [_lead, _beside])
def test_what_is_done_again_anyway_does_not_wait(write: Callable[[uuid.UUID], None]) -> None:
    """A lead is shorter after a crash of the server, and a measurement is taken anew."""
    write(uuid.uuid4())
    assert waits()


def test_a_duty_is_taken_and_ended_without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both, and its work in between waits as it wants."""
    monkeypatch.setattr(duties, "_registered", {})
    monkeypatch.setattr(duties, "POINTS", dict(duties.POINTS))
    seen = []
    duty("dust", every=lambda: 60.0)(lambda using: seen.append(waits()))
    lazy = []

    def watch(execute, sql, params, *rest):
        if sql.startswith("UPDATE"):
            lazy.append("synchronous_commit" in sql)
        return execute(sql, params, *rest)

    with connection.execute_wrapper(watch):
        assert Rota("default").do_what_is_due() == ["dust"]
    assert lazy == [True, True]
    assert seen == [True]
    assert Duty.objects.get(name="dust").busy_until is None


def test_somebody_elses_commit_still_waits() -> None:
    """Within a transaction, that one's durability stays as it is."""
    Counter.objects.create(name="n", lane="l", value=1)
    with transaction.atomic():
        assert lazily(Counter.objects.filter(name="n")).update(value=2) == 1
        with lazy_transaction("default"):
            assert waits()
    connection.set_autocommit(False)
    try:
        assert lazily(Counter.objects.filter(name="n")).update(value=3) == 1
        assert waits()
    finally:
        connection.rollback()
        connection.set_autocommit(True)
