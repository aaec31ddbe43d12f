"""How many attempts began, and how many were put back, in the last minute, for all workers together.

An attempt that begins is counted in the process' memory and told with its other counts, so it costs
no statement. A retry is counted when it happens, and only then the window is read: of those that
come at one moment each sees itself and whoever was before it.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import os
import threading
from collections.abc import Iterator, Mapping

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from celery_guard.jobs.deadlock import again_on_deadlock
from celery_guard.relay.limits.side import apart

LENGTH = 5
"""Seconds of one bucket."""
BUCKETS = 12
"""Buckets of the window, the one that is not over among them."""
SLOTS = 16


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Lately:
    """What is known of the window; of the starts those that were told."""

    starts: int
    retries: int


class Starts:
    """The attempts that began in this process and were not yet told."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Start anew: after a fork the parent still tells its own."""
        self._lock = threading.Lock()
        self._counts: collections.Counter[tuple[str, str]] = collections.Counter()

    def count(self, using: str, resource: str) -> None:
        """One more began."""
        with self._lock:
            self._counts[using, resource] += 1

    def taken(self, using: str, resource: str) -> int:
        """Those of one resource, to be told now by the caller."""
        with self._lock:
            return self._counts.pop((using, resource), 0)

    def usings(self) -> list[str]:
        """The ledgers that something is to be told to."""
        with self._lock:
            return sorted({using for using, _ in self._counts})

    def tell(self, using: str) -> None:
        """Add all of ``using`` to its table, on this thread's connection; what fails is kept.

        :raises django.db.Error: when the database does not take them.
        """
        with self._lock:
            mine = {key: n for key, n in self._counts.items() if key[0] == using}
            for key in mine:
                del self._counts[key]
        try:
            _add(using, {resource: (n, 0) for (_, resource), n in mine.items()})
        except BaseException:
            with self._lock:
                self._counts.update(mine)
            raise


starts = Starts()
"""This process' own."""
os.register_at_fork(after_in_child=starts.forget)


def add_retry(using: str, resource: str) -> Lately:
    """Count one retry of ``resource`` and return the window with it.

    Counted for good, whatever becomes of the transaction that the caller is in.
    """
    _add(using, {resource: (starts.taken(using, resource), 1)})
    with _connection(using) as connection, connection.cursor() as cursor:
        bucket = _BUCKET[connection.vendor]
        cursor.execute(_READ.format(bucket=bucket), [resource, BUCKETS])
        began, again = cursor.fetchone()
    return Lately(starts=int(began), retries=int(again))


def _add(using: str, counts: Mapping[str, tuple[int, int]]) -> None:
    if not counts:
        return
    # Sorted: two processes that add to the same rows in different orders would deadlock.
    rows = sorted((resource, *numbers) for resource, numbers in counts.items())

    def add() -> None:
        with _connection(using) as connection, connection.cursor() as cursor:
            row = _ROW.format(bucket=_BUCKET[connection.vendor])
            places = ", ".join([row] * len(rows))
            upsert = _UPSERT["mysql" if connection.vendor == "mysql" else ""]
            cursor.execute(_INSERT + places + upsert, [value for row in rows for value in row])

    again_on_deadlock(add, using=using)


@contextlib.contextmanager
def _connection(using: str) -> Iterator[BaseDatabaseWrapper]:
    # In autocommit a statement is all there is: nobody can be frozen with a row in hand.
    usual = connections[using]
    if usual.in_atomic_block or (usual.connection is not None and not usual.autocommit):
        with apart(using) as own:
            yield own
    else:
        yield usual


# The time of the statement, since it is named twice in a row.
_BUCKET = {
    "postgresql": f"(floor(extract(epoch FROM statement_timestamp()) / {LENGTH})::bigint)",
    "mysql": f"(unix_timestamp() DIV {LENGTH})",
    "sqlite": f"(CAST(strftime('%%s', 'now') AS integer) / {LENGTH})",
}
_INSERT = "INSERT INTO celery_guard_retrywindow (resource, starts, retries, slot, bucket) VALUES "
_ROW = f"(%s, %s, %s, {{bucket}} %% {SLOTS}, {{bucket}})"
_OLD = "celery_guard_retrywindow"
# Another bucket in the slot is an old one, or was written under a clock that was ahead.
_UPSERT = {
    "": f""" ON CONFLICT (resource, slot) DO UPDATE SET
        starts = CASE WHEN {_OLD}.bucket = excluded.bucket THEN {_OLD}.starts ELSE 0 END
                 + excluded.starts,
        retries = CASE WHEN {_OLD}.bucket = excluded.bucket THEN {_OLD}.retries ELSE 0 END
                  + excluded.retries,
        bucket = excluded.bucket""",
    # The bucket last: here an assignment sees those before it.
    "mysql": """ ON DUPLICATE KEY UPDATE
        starts = CASE WHEN bucket = VALUES(bucket) THEN starts ELSE 0 END + VALUES(starts),
        retries = CASE WHEN bucket = VALUES(bucket) THEN retries ELSE 0 END + VALUES(retries),
        bucket = VALUES(bucket)""",
}
_READ = """SELECT coalesce(sum(starts), 0), coalesce(sum(retries), 0)
FROM celery_guard_retrywindow
WHERE resource = %s AND bucket > {bucket} - %s AND bucket <= {bucket}"""
