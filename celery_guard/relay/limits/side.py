"""A transaction that is over at once, whatever transaction the caller is in."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper


@contextlib.contextmanager
def apart(using: str) -> Iterator[BaseDatabaseWrapper]:
    """One short transaction on ``using``, on a connection of its own where that is needed.

    Inside a body's transaction a limit's row would stay locked to its end, and its rollback would
    give the tokens back although the call was made. In a test case's transaction, and on SQLite
    (one writer at a time), the same connection serves.
    """
    usual = connections[using]
    if not _in_the_way(usual):
        with transaction.atomic(using=using):
            yield usual
        return
    own = usual.copy()
    # A pool hands its connections out by alias: this one must not wait for a place in it.
    own.settings_dict["OPTIONS"] = {
        name: value for name, value in own.settings_dict["OPTIONS"].items() if name != "pool"
    }
    connections[using] = own
    try:
        with transaction.atomic(using=using):
            yield own
    finally:
        connections[using] = usual
        own.close()


def _in_the_way(connection: BaseDatabaseWrapper) -> bool:
    if connection.vendor == "sqlite":
        return False
    if any(getattr(block, "_from_testcase", False) for block in connection.atomic_blocks):
        return False
    by_hand = connection.connection is not None and not connection.autocommit
    return connection.in_atomic_block or by_hand
