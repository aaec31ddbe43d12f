"""Waiting for something that other processes do."""

import time
from collections.abc import Callable
from typing import TypeVar

INTERVAL = 0.02
T = TypeVar("T")


def wait_for(predicate: Callable[[], T], *, timeout: float = 20.0, what: str) -> T:
    """The first true value of `predicate`, asked every 20 ms.

    AssertionError after `timeout` seconds; it names `what` was awaited and the last value.
    """
    deadline = time.monotonic() + timeout
    while True:
        value = predicate()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {timeout:g} s for {what}; last value: {value!r}")
        time.sleep(INTERVAL)
