"""Two ways to die at a point: a process that is killed, and an exception where none can be had."""

from __future__ import annotations

import dataclasses
import os
import signal
import tempfile
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

from django.db import connections

from celery_guard.faults import React, reacting

PATIENCE = 60
"""Seconds that a child process may take for one attempt."""


class Died(BaseException):
    """Stands in for a kill; not an ``Exception``, so that no body catches it by accident."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """The ``nth`` passing of a fault point."""

    point: str
    nth: int = 1

    def __str__(self) -> str:
        return self.point if self.nth == 1 else f"{self.point} (pass {self.nth})"


def dies_here(death: Death, attempt: Callable[[], None]) -> bool:
    """Run ``attempt`` and raise at the point; whether it came that far."""

    def die() -> None:
        raise Died(str(death))

    try:
        with reacting(_at(death, die)):
            attempt()
    except Died:
        return True
    return False


def dies_in_a_process(death: Death, attempt: Callable[[], None]) -> bool:
    """Run ``attempt`` in a forked child that kills itself at the point; whether it did.

    :raises AssertionError: with the child's traceback, when it ended in any other way.
    """
    # A connection must not be used on both sides of a fork.
    connections.close_all()
    with tempfile.TemporaryDirectory() as folder:
        note = Path(folder) / "traceback"
        with warnings.catch_warnings():
            # Python warns of forks beside threads; a prefork worker does the same.
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if pid == 0:
            _live_and_die(death, attempt, note)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if status == -signal.SIGKILL:
            return True
        if note.exists() or status != 0:
            why = note.read_text() if note.exists() else f"it ended with {status}"
            raise AssertionError(f"the child that was to die at {death}: {why}")
    return False


def _live_and_die(death: Death, attempt: Callable[[], None], note: Path) -> None:
    # Nothing of the test may go on in the child: no handler, no report, no clean-up.
    signal.alarm(PATIENCE)
    try:
        with reacting(_at(death, lambda: os.kill(os.getpid(), signal.SIGKILL))):
            attempt()
    except BaseException:  # noqa: BLE001 - whatever it is, the parent tells of it
        note.write_text(traceback.format_exc())
    finally:
        os._exit(0)


def _at(death: Death, die: Callable[[], object]) -> React:
    passes: Iterator[int] = iter(range(1, death.nth + 1))
    here = threading.get_ident()

    def react(name: str, jobs: tuple[int, ...]) -> None:
        # A heartbeat passes its points on a thread of its own.
        if name == death.point and threading.get_ident() == here and next(passes, 0) == death.nth:
            die()

    return react
