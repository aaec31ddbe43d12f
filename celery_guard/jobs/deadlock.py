"""What a database says of locks, and a short transaction of the guard's own done again for it."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from django.db import DatabaseError, Error, connections

# PostgreSQL's SQLSTATEs and MariaDB's numbers. Deadlocks pass when tried again; a lock that was
# waited for as long as the database allows is not waited for once more.
_DEADLOCK = frozenset({"40P01", "40001", 1213})
_WAITED = frozenset({"55P03", 1205})

TRIES = 5
"""How often a transaction is begun that the database ends for a deadlock."""

T = TypeVar("T")


def is_deadlock(error: Error) -> bool:
    """Whether the database ended the transaction so that another could go on."""
    return _is(error, _DEADLOCK)


def is_lock_timeout(error: DatabaseError) -> bool:
    """Whether a lock was waited for as long as the database allows."""
    return _is(error, _WAITED)


def pause_before_again(attempt: int) -> None:
    """Wait a little, by chance: two that met must not meet again at once."""
    time.sleep(random.uniform(0, 0.02 * 2**attempt))


def again_on_deadlock(write: Callable[[], T], *, using: str | None = None) -> T:
    """Run ``write``, a whole transaction, again while the database ends it for a deadlock.

    :param using: where ``write`` may be part of a transaction that is open already: it is then
        run once, since only the whole can be repeated.
    :raises DatabaseError: as ``write`` does, for a deadlock after ``TRIES`` of them.
    """
    nested = using is not None and connections[using].in_atomic_block
    for attempt in range(0 if nested else TRIES - 1):
        try:
            return write()
        except DatabaseError as error:
            if not is_deadlock(error):
                raise
        pause_before_again(attempt)
    return write()


def _is(error: Error, codes: frozenset[object]) -> bool:
    return not codes.isdisjoint({getattr(error.__cause__, "sqlstate", None), *error.args[:1]})
