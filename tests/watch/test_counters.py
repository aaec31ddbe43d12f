"""Counts that are added to the table by many processes at once."""

from __future__ import annotations

import collections
import multiprocessing
import os
import re
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import InterfaceError, OperationalError, connection, connections, transaction
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


def series_of_a_child(pipe: Any) -> None:
    """What a forked child takes along of the counts of everything else."""
    pipe.send(dict(counters.series_tally._counts))
    os._exit(0)


def test_a_fork_takes_no_other_counts_along() -> None:
    """Nor of those."""
    counters.series_tally.count("default", "things", "{}", by=5)
    try:
        connection.close()
        here, there = multiprocessing.Pipe()
        fork = multiprocessing.get_context("fork")
        process = fork.Process(target=series_of_a_child, args=(there,))
        process.start()
        assert here.recv() == {}
        process.join()
    finally:
        counters.series_tally.forget()


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Tally]:
    """A worker's tally, whose timer is short; no timer is left when the test ends."""
    monkeypatch.setattr(counters, "EVERY", 0.05)
    tally = Tally()
    tally.timed = True
    yield tally
    tally.timed = False
    if tally._timer is not None:
        tally._timer.join(10)


class Slow(collections.Counter[Any]):
    """Counts during whose change somebody else flushes, if nothing keeps it from that."""

    def __init__(self, tally: Tally) -> None:
        super().__init__()
        self.tally = tally

    def __setitem__(self, key: Any, value: int) -> None:
        self.other = threading.Thread(target=flush_apart, args=(self.tally,))
        self.other.start()
        self.other.join(0.5)
        super().__setitem__(key, value)


def flush_apart(tally: Tally) -> None:
    """In a thread of its own."""
    try:
        tally.flush()
    finally:
        connections.close_all()


def test_a_count_during_a_flush_is_not_lost() -> None:
    """A flush takes the counts away while none is being changed."""
    tally = Tally()
    tally._counts = counts = Slow(tally)
    tally.count("default", "things", "high")
    counts.other.join(10)
    tally.flush()
    assert totals("default", "things") == {"high": 1}


def test_what_is_kept_is_told_later(monkeypatch: pytest.MonkeyPatch, timed: Tally) -> None:
    """Also where its timer has run out while a flush by hand had the counts."""
    add, failed = counters._add, threading.Event()

    def away(*given: Any) -> None:
        if failed.is_set():
            return add(*given)
        wait_for(lambda: timed._timer is None, what="the timer to run out")
        failed.set()
        raise OperationalError("away")

    monkeypatch.setattr(counters, "_add", away)
    timed.count("default", "things", "high")
    timed.flush()
    wait_for(lambda: totals("default", "things") == {"high": 1}, what="the second try")


def test_a_flush_that_hangs_is_joined_by_none(
    monkeypatch: pytest.MonkeyPatch, timed: Tally
) -> None:
    """At a frozen database one thread waits; what is counted meanwhile is told after it."""
    add, hangs, goes_on = counters._add, threading.Event(), threading.Event()
    waiting: list[int] = []

    def slow(*given: Any) -> None:
        waiting.append(threading.get_ident())
        hangs.set()
        assert goes_on.wait(30)
        add(*given)

    monkeypatch.setattr(counters, "_add", slow)
    timed.count("default", "things", "high")
    assert hangs.wait(30)
    for _ in range(3):
        timed.count("default", "things", "high")
        time.sleep(0.1)
    assert len(waiting) == 1
    goes_on.set()
    wait_for(lambda: totals("default", "things") == {"high": 4}, what="all counts")


def test_a_process_that_ends_waits_for_no_timer() -> None:
    """Nobody waits for seconds because something has just been counted."""
    tally = Tally()
    tally.timed = True
    tally.count("default", "things", "high")
    assert tally._timer is not None
    try:
        assert tally._timer.daemon
    finally:
        tally._timer.cancel()


def test_the_timers_thread_leaves_no_connection(
    monkeypatch: pytest.MonkeyPatch, timed: Tally
) -> None:
    """It is closed by then, not when somebody collects the thread's rubbish."""
    add, used = counters._add, list[Any]()

    def seen(using: str, *given: Any) -> None:
        add(using, *given)
        used.append(connections[using])

    monkeypatch.setattr(counters, "_add", seen)
    timed.count("default", "things", "high")
    wait_for(lambda: used and used[0].connection is None, what="the connection to be closed")


def test_a_ledger_that_is_away_keeps_no_other_waiting(
    monkeypatch: pytest.MonkeyPatch, told: list[Event]
) -> None:
    """Each has its own counts, and its own word that they wait."""
    add = counters._add

    def first_away(using: str, *given: Any) -> None:
        if using == "default":
            raise InterfaceError("away")
        add(using, *given)

    tally = Tally()
    for using in ("default", "other"):
        tally.count(using, "things", "high")
    with monkeypatch.context() as broken:
        broken.setattr(counters, "_add", first_away)
        tally.flush()
    assert [event.facts["using"] for event in told] == ["default"]
    assert (totals("default", "things"), totals("other", "things")) == ({}, {"high": 1})
    tally.flush()
    assert (totals("default", "things"), totals("other", "things")) == ({"high": 1}, {"high": 1})


def test_a_deadlock_is_tried_again(monkeypatch: pytest.MonkeyPatch, told: list[Event]) -> None:
    """At once: counts need not wait for the next flush."""
    add, tries = counters._add, list[int]()

    def deadlocked(*given: Any) -> None:
        tries.append(1)
        if len(tries) == 1:
            raise OperationalError(1213, "deadlock")
        add(*given)

    monkeypatch.setattr(counters, "_add", deadlocked)
    tally = Tally()
    tally.count("default", "things", "high")
    tally.flush()
    assert totals("default", "things") == {"high": 1}
    assert not told


class Starts:
    """Starts that two ledgers are to be told, of which one is away."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def usings(self) -> list[str]:
        return ["default", "other"]

    def tell(self, using: str) -> None:
        if using == "default":
            raise OperationalError("away")
        self.told.append(using)


def test_starts_that_cannot_be_told_keep_no_others_waiting(told: list[Event]) -> None:
    """Those of the retry budget go with the counts."""
    starts = Starts()
    Tally(starts=starts).flush()  # type: ignore[arg-type]
    assert starts.told == ["other"]
    assert [event.name for event in told] == ["watch.counts_kept"]


def test_the_whole_of_a_counter_is_replaced() -> None:
    """A lane that has nothing any more is gone from it; other counters stay."""
    with transaction.atomic():
        counters.replace("default", "found", {"high": 1, "low": 2})
        counters.replace("default", "others", {"high": 3})
        counters.replace("default", "found", {"low": 5})
    assert totals("default", "found") == {"low": 5}
    assert totals("default", "others") == {"high": 3}
