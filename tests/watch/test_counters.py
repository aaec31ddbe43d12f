"""Counts that are added to the table by many processes at once."""

from __future__ import annotations

import multiprocessing
import os
import re
import threading

import pytest
from django.db import OperationalError, connection, connections
from django.test.utils import CaptureQueriesContext

from celery_guard.events import Event
from celery_guard.watch import counters
from celery_guard.watch.counters import Tally, totals
from celery_guard.watch.models import Counter
from tests.kit.wait import wait_for

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.mariadb]


def test_a_flush_adds_everything_once() -> None:
    """Counts of one name and lane are added to its row; a second flush adds nothing."""
    tally = Tally()
    for lane in ("high", "low", "high"):
        tally.count("default", "things", lane)
    tally.flush()
    tally.flush()
    assert totals("default", "things") == {"high": 2, "low": 1}


def test_counts_are_flushed_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even a process that goes idle after a burst tells what it has counted."""
    monkeypatch.setattr(counters, "EVERY", 0.05)
    tally = Tally()
    tally.timed = True
    tally.count("default", "things", "high", by=3)
    wait_for(lambda: totals("default", "things") == {"high": 3}, what="the flush")


def test_only_a_worker_keeps_a_timer() -> None:
    """Outside a worker nothing touches the database later: counts wait for a flush."""
    tally = Tally()
    tally.count("default", "things", "high")
    assert tally._timer is None


def test_many_writers_in_any_order_lose_nothing_and_do_not_deadlock() -> None:
    """Eight writers add to the same rows, each having counted in its own order."""
    lanes = [f"lane-{n}" for n in range(20)]

    def write(shift: int) -> None:
        try:
            tally = Tally()
            for _ in range(10):
                for lane in lanes[shift:] + lanes[:shift]:
                    tally.count("default", "things", lane)
                tally.flush()
        finally:
            connections.close_all()

    writers = [threading.Thread(target=write, args=(n,)) for n in range(8)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert totals("default", "things") == dict.fromkeys(lanes, 80)


def test_rows_are_written_in_one_order() -> None:
    """Two statements that lock the same rows in different orders would deadlock."""
    tally = Tally()
    for lane in ("m", "z", "a"):
        tally.count("default", "things", lane)
    with CaptureQueriesContext(connection) as captured:
        tally.flush()
    (statement,) = (query["sql"] for query in captured if "INSERT" in query["sql"])
    assert re.findall(r"'things', '(\w)'", statement) == ["a", "m", "z"]


def test_what_cannot_be_added_is_kept(monkeypatch: pytest.MonkeyPatch, told: list[Event]) -> None:
    """A database that is away costs no count; the event says that counts wait."""

    def away(*_: object) -> None:
        raise OperationalError("away")

    tally = Tally()
    tally.count("default", "things", "high", by=2)
    with monkeypatch.context() as broken:
        broken.setattr(counters, "_add", away)
        tally.flush()
    assert [event.name for event in told] == ["watch.counts_kept"]
    assert totals("default", "things") == {}
    tally.flush()
    assert totals("default", "things") == {"high": 2}


def test_a_fork_takes_no_counts_along() -> None:
    """What the parent has counted is added by the parent alone."""
    counters.tally.count("default", "things", "high", by=5)

    def child(pipe: object) -> None:
        pipe.send(dict(counters.tally._counts))  # type: ignore[attr-defined]
        os._exit(0)

    connection.close()
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(target=child, args=(there,))
    process.start()
    assert here.recv() == {}
    process.join()
    counters.tally.flush()
    assert Counter.objects.get(name="things").value == 5
