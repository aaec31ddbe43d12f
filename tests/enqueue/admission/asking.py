"""Requests, many at once."""

import threading
from collections.abc import Callable
from typing import Any

from django.db import connections

from celery_guard import AdmissionRefused, admit
from tests.enqueue.sessions import LONG, apart


def granted(task: Any, *args: Any, **options: Any) -> bool:
    """Whether a request gets a place, which it then holds."""
    return admit(task, args, on_refused="return", **options).granted


def crowd(size: int, ask: Callable[[int], Any], *aliases: str) -> list[Any]:
    """What `ask(n)` returns in each of `size` sessions that all begin at one barrier."""
    barrier = threading.Barrier(size, timeout=LONG)

    def run(n: int) -> Any:
        # The connections first: opening them is what takes the time.
        for alias in aliases or ("default",):
            connections[alias].ensure_connection()
        barrier.wait()
        return ask(n)

    futures = [apart(lambda n=n: run(n)) for n in range(size)]
    return [future.result(LONG) for future in futures]


def refusal(task: Any, *args: Any, **options: Any) -> AdmissionRefused:
    """The refusal that a request meets."""
    try:
        admit(task, args, **options)
    except AdmissionRefused as refused:
        return refused
    raise AssertionError("nothing was refused")
