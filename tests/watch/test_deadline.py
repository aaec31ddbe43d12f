"""A read that hangs holds nobody up for longer than it may take."""

from __future__ import annotations

import threading

import pytest

from celery_guard.watch.deadline import Deadline, Overdue


def test_a_read_that_hangs_is_given_up_and_not_started_again() -> None:
    """However often somebody asks, one thread waits; when it comes back, reading goes on."""
    begun: list[int] = []
    gate = threading.Event()

    def read() -> int:
        begun.append(1)
        gate.wait(30)
        return len(begun)

    deadline = Deadline(read, seconds=0.02)
    for _ in range(3):
        with pytest.raises(Overdue):
            deadline.get()
    assert len(begun) == 1
    gate.set()
    patient = Deadline(read, seconds=30)
    assert patient.get() == 2


def test_every_read_is_a_fresh_one() -> None:
    """An answer that came is not kept for the next who asks."""
    answers = iter([1, 2])
    deadline = Deadline(lambda: next(answers), seconds=30)
    assert (deadline.get(), deadline.get()) == (1, 2)


def test_an_error_is_told_to_whoever_waits() -> None:
    """And not printed by a dying thread."""

    def read() -> int:
        raise LookupError("gone")

    with pytest.raises(LookupError, match="gone"):
        Deadline(read, seconds=30).get()
