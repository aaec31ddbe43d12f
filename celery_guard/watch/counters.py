"""Counts that every process keeps in memory and adds to a table now and then.

The first count after a flush arms a timer; the timer's thread adds everything in one upsert on
a connection of its own, and closes it. So a count costs no statement, an idle process holds no
connection, and what a process has counted is in the table within ``EVERY`` seconds. A process
that is killed takes at most that with it.
"""

from __future__ import annotations

import collections
import dataclasses
import logging
import os
import threading
from collections.abc import Iterable, Mapping
from functools import partial

from django.db import DatabaseError, InterfaceError, connections

from celery_guard.events import emit
from celery_guard.jobs.deadlock import again_on_deadlock
from celery_guard.run.retry_window import Starts, starts
from celery_guard.watch.models import Counter

EVERY = 5.0
"""Seconds from the first count to the flush."""
COMPLETIONS = "completions"
"""Jobs that ended in a worker, whatever the end."""

Key = tuple[str, str, str]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Where counts go: rows of a name and ``column``, unique together."""

    name: str
    column: str

    def upsert(self, vendor: str, places: str) -> str:
        """The statement that adds to so many rows."""
        insert = f"INSERT INTO {self.name} (name, {self.column}, value) VALUES {places} "  # noqa: S608
        if vendor == "mysql":
            return insert + "ON DUPLICATE KEY UPDATE value = value + VALUES(value)"
        conflict = f"ON CONFLICT (name, {self.column}) DO UPDATE "
        return insert + conflict + f"SET value = {self.name}.value + excluded.value"


OF_LANES = Table(name="celery_guard_counter", column="lane")
OF_SERIES = Table(name="celery_guard_series", column="labels")


class Tally:
    """What one process has counted and not yet added to the table."""

    # Only a worker keeps a timer: elsewhere (a test, a shell) nothing may touch the database
    # after the code that was asked for has ended.
    timed = False

    def __init__(self, table: Table = OF_LANES, starts: Starts | None = None) -> None:
        self._table = table
        self._starts = starts
        self.forget()

    def forget(self) -> None:
        """Start anew: after a fork the parent still adds its counts, and a copy would be twice."""
        self._lock = threading.Lock()
        self._counts: collections.Counter[Key] = collections.Counter()
        self._timer: threading.Timer | None = None

    def count(self, using: str, name: str, lane: str, by: int = 1) -> None:
        """Count ``name`` in ``lane`` (or under such labels) of the ledger on ``using``."""
        self.count_all(using, ((name, lane, by),))

    def count_all(self, using: str, counts: Iterable[tuple[str, str, int]]) -> None:
        """:meth:`count` several: each with its lane, and by how many."""
        with self._lock:
            for name, lane, by in counts:
                self._counts[using, name, lane] += by
            self._arm()

    def flush(self) -> None:
        """Add everything to the table, on this thread's connections; what fails is kept."""
        with self._lock:
            counts, self._counts = self._counts, collections.Counter()
        for using in sorted({using for using, _, _ in counts}):
            mine = {key: value for key, value in counts.items() if key[0] == using}
            try:
                again_on_deadlock(partial(_add, using, self._table, mine), using=using)
            except (DatabaseError, InterfaceError) as error:
                emit("watch.counts_kept", logging.WARNING, using=using, error=str(error))
                self._keep(mine)
        self._tell_starts()

    def _tell_starts(self) -> None:
        if self._starts is None:
            return
        for using in self._starts.usings():
            try:
                self._starts.tell(using)
            except (DatabaseError, InterfaceError) as error:
                emit("watch.counts_kept", logging.WARNING, using=using, error=str(error))

    def _keep(self, counts: Mapping[Key, int]) -> None:
        with self._lock:
            self._counts.update(counts)
            self._arm()

    def _arm(self) -> None:
        if self.timed and self._timer is None:
            self._timer = threading.Timer(EVERY, self._fire)
            self._timer.daemon = True
            self._timer.start()

    def _fire(self) -> None:
        try:
            self.flush()
        finally:
            connections.close_all()
            with self._lock:
                # Only now: while a flush hangs at a frozen database, no second one joins it.
                self._timer = None
                if self._counts:
                    self._arm()


def _add(using: str, table: Table, counts: Mapping[Key, int]) -> None:
    connection = connections[using]
    # Sorted: two processes that add to the same rows in different orders would deadlock.
    rows = sorted((name, lane, value) for (_, name, lane), value in counts.items())
    places = ", ".join(["(%s, %s, %s)"] * len(rows))
    # One statement: what has failed halfway would be added twice.
    with connection.cursor() as cursor:
        cursor.execute(
            table.upsert(connection.vendor, places), [value for row in rows for value in row]
        )


def totals(using: str, name: str) -> dict[str, int]:
    """The counter ``name`` by lane."""
    rows = Counter.objects.using(using).filter(name=name)
    return dict(rows.values_list("lane", "value"))


def replace(using: str, name: str, values: Mapping[str, int]) -> None:
    """Make ``values``, by lane, the whole of the counter ``name``, in the open transaction."""
    rows = Counter.objects.using(using)
    rows.filter(name=name).delete()
    rows.bulk_create([Counter(name=name, lane=lane, value=values[lane]) for lane in sorted(values)])


tally = Tally()
"""This process' counts of lanes."""
series_tally = Tally(OF_SERIES, starts)
"""This process' counts of everything else: :mod:`celery_guard.watch.counted`; with them go the starts
of the retry budget."""

os.register_at_fork(after_in_child=tally.forget)
os.register_at_fork(after_in_child=series_tally.forget)
