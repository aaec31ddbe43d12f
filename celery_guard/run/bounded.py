"""A database connection for a process that must not be held up: the worker's main process."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from django.db import connections, transaction

from celery_guard.run.worker import discard

SECONDS = 2
"""Longest wait for a connection, for an answer and for a lock."""

_OPTIONS = {
    "postgresql": {"connect_timeout": SECONDS, "tcp_user_timeout": SECONDS * 1000},
    "mysql": {
        "connect_timeout": SECONDS,
        "read_timeout": 2 * SECONDS,
        "write_timeout": 2 * SECONDS,
    },
}
_LOCK_LIMIT = {
    "postgresql": f"SET LOCAL lock_timeout = '{SECONDS}s'",
    "mysql": f"SET innodb_lock_wait_timeout = {SECONDS}",
}


@contextlib.contextmanager
def bounded(using: str) -> Iterator[None]:
    """One transaction on a connection of its own, with short time-outs, closed at the end.

    The main process forks: a connection left open would be inherited by the next child.
    """
    usual = connections[using]
    own = usual.copy()
    options = {n: v for n, v in own.settings_dict["OPTIONS"].items() if n != "pool"}
    own.settings_dict["OPTIONS"] = {**options, **_OPTIONS.get(own.vendor, {})}
    connections[using] = own
    try:
        with transaction.atomic(using=using):
            if (limit := _LOCK_LIMIT.get(own.vendor)) is not None:
                own.cursor().execute(limit)
            yield
    finally:
        discard(own)
        connections[using] = usual
