"""Work that must be committed whatever becomes of the caller's transaction."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from django.db import connections

from celery_guard.enqueue.request import in_user_transaction

T = TypeVar("T")


def apart(using: str, work: Callable[[], T]) -> T:
    """``work()``, on a database connection of its own where ``using`` is in a transaction.

    SQLite takes one writer at a time: there the work shares the transaction.
    """
    if not in_user_transaction(using) or connections[using].vendor == "sqlite":
        return work()
    future: Future[T] = Future()
    thread = threading.Thread(target=_run, args=(future, work), name="guard-admission", daemon=True)
    thread.start()
    return future.result()


def _run(future: Future[T], work: Callable[[], T]) -> None:
    try:
        result = work()
    except BaseException as error:  # noqa: BLE001 - raised again where it is asked for
        future.set_exception(error)
    else:
        future.set_result(result)
    finally:
        # Connections belong to threads, and this one ends.
        connections.close_all()
