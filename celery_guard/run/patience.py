"""Waiting for a database that is away."""

from __future__ import annotations

import itertools
import logging
import random
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from django.db import InterfaceError, OperationalError, connections

from celery_guard.events import emit
from celery_guard.jobs.deadlock import is_deadlock
from celery_guard.run.classify import underlying
from celery_guard.run.worker import discard

LONGEST = 5.0
"""Longest pause between two tries, in seconds."""

T = TypeVar("T")


def pauses() -> Iterator[float]:
    """Seconds to wait before each next try: none at first, then growing, jittered, capped.

    The first try after a failure comes at once, since a kept connection may just have died.
    """
    yield 0.0
    for tries in itertools.count():
        yield random.uniform(0.5, 1.0) * min(LONGEST, 0.1 * 2.0 ** min(tries, 10))


def patiently(using: str, action: Callable[[], T]) -> tuple[T, bool]:
    """What ``action`` returns, and whether an earlier try of it may have been committed.

    Tries again while the database is away, for as long as that lasts. In a transaction that is
    not its own it doesn't: that can only be repeated as a whole.
    """
    doubtful = False
    for pause in pauses():
        try:
            return action(), doubtful
        except (OperationalError, InterfaceError) as error:
            if connections[using].in_atomic_block or underlying(error) is not error:
                raise
            if is_deadlock(error):
                # It is there, and ended the transaction so that another could go on.
                time.sleep(pause)
                continue
            emit("run.database_away", logging.WARNING, using=using, why=str(error).strip())
            discard(connections[using])
            doubtful = True
            time.sleep(pause)
    raise AssertionError("unreachable")
