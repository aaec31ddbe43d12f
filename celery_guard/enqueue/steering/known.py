"""What was set at run time, as one process knows it: read at most once in :data:`KEEPS` seconds."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from django.db import Error as DatabaseError
from django.db import connections, transaction

from celery_guard.events import emit

KEEPS = 1.0

T = TypeVar("T")


class Known(Generic[T]):
    """One kind of it, in each ledger.

    When the database can't be asked, the event ``blind`` says so and what was read last still
    counts; ``nothing`` does if nothing was ever read.
    """

    def __init__(self, read: Callable[[str], T], *, nothing: T, blind: str) -> None:
        self._read = read
        self._nothing = nothing
        self._blind = blind
        self._kept: dict[str, tuple[float, T]] = {}

    def now(self, using: str) -> T:
        """What counts for the ledger on ``using``, at most :data:`KEEPS` seconds old."""
        read_at, found = self._kept.get(using, (None, self._nothing))
        if read_at is None or time.monotonic() - read_at > KEEPS:
            found = self._ask(using, found)
            self._kept[using] = (time.monotonic(), found)
        return found

    def last(self, using: str) -> T:
        """The same as it was read last, without a look."""
        return self._kept.get(using, (0.0, self._nothing))[1]

    def forget(self) -> None:
        """Read anew at the next look."""
        self._kept.clear()

    def _ask(self, using: str, found: T) -> T:
        try:
            if not connections[using].in_atomic_block:
                return self._read(using)
            # A fault here must not break the caller's transaction.
            with transaction.atomic(using=using):
                return self._read(using)
        except DatabaseError as error:
            emit(self._blind, logging.WARNING, using=using, error=str(error).strip())
            return found
