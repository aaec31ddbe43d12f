"""Writes that do not wait for the disk, where PostgreSQL can: for what is done again if it is lost.

Everybody sees them at once. A crash of the server, and only that, may undo those of its last moments.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TypeVar

from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import BooleanField, Func, Model, QuerySet

Row = TypeVar("Row", bound=Model)


class _LeavesTheDiskBehind(Func):
    """True; and the transaction that it is asked in does not wait for the disk."""

    template = "set_config('synchronous_commit', 'off', true) = 'off'"
    output_field = BooleanField()


def lazily(rows: QuerySet[Row]) -> QuerySet[Row]:
    """These ``rows``, to be updated in a transaction of the statement's own."""
    return rows.filter(_LeavesTheDiskBehind()) if _can(connections[rows.db]) else rows


@contextlib.contextmanager
def lazy_transaction(using: str) -> Iterator[None]:
    """A transaction of several statements; inside of somebody's own, a part of that."""
    connection = connections[using]
    can = _can(connection)
    with transaction.atomic(using=using):
        if can:
            with connection.cursor() as cursor:
                cursor.execute("SELECT set_config('synchronous_commit', 'off', true)")
        yield


def _can(connection: BaseDatabaseWrapper) -> bool:
    # In somebody's transaction it would be their commit that doesn't wait.
    own = not connection.in_atomic_block and connection.get_autocommit()
    return own and connection.vendor == "postgresql"
