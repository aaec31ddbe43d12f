"""The jobs of the load. None of their rows is unique, so a second one would be seen and counted."""

import functools
import time
from collections.abc import Callable
from typing import Any

from celery import chain, chord

from celery_guard import current_job, guarded_task
from tests.chaos import bank
from tests.project.shop.models import Invoice, Mark, Payment

SLOW = 1.2
"""Seconds of a body that needs heartbeats: its lease is 2 s."""


@guarded_task(key="invoice:{order}", lane="high")
def invoice(order: int) -> int:
    """One row in the job's transaction."""
    return Invoice.objects.create(order_id=order).pk


@guarded_task(key="flaky:{order}", transient=(ConnectionError,))
def flaky(order: int) -> None:
    """Writes, then fails in passing once or twice."""
    Mark.objects.create(name=f"flaky-{order}")
    if current_job().failures < 1 + order % 2:
        raise ConnectionError("not yet")


@guarded_task(key="slow:{order}", lane="low")
def slow(order: int) -> None:
    """Lives on heartbeats."""
    Mark.objects.create(name=f"slow-{order}")
    time.sleep(SLOW)


@guarded_task(key="keyed:{order}", atomic=False, transient=(OSError,))
def keyed(order: int) -> str:
    """A charge with a provider that honours keys."""
    return _charge(order, bank.KEYED, find=None)


@guarded_task(key="asked:{order}", atomic=False, transient=(OSError,))
def asked(order: int) -> str:
    """A charge with a provider that knows no keys, but can be asked."""
    return _charge(order, bank.ASKED, find=bank.find)


def _charge(order: int, provider: Any, find: Any) -> str:
    job = current_job()
    call = functools.partial(bank.charge, order, keyed=find is None)
    answer = job.effect("charge", call, find=find, provider=provider)
    with job.finish():
        Payment.objects.create(order_id=order, reference=answer.id)
    return str(answer.id)


@guarded_task(key="first:{order}")
def first(order: int) -> int:
    """The first step of a chain."""
    Mark.objects.create(name=f"first-{order}")
    return order


@guarded_task(key="second:{order}")
def second(order: int) -> None:
    """The second."""
    Mark.objects.create(name=f"second-{order}")


@guarded_task(key="member:{order}:{number}")
def member(order: int, number: int) -> int:
    """One of a chord."""
    Mark.objects.create(name=f"member{number}-{order}")
    return number


@guarded_task(key="close:{order}")
def close(numbers: list[int], order: int) -> None:
    """Its body; wrong if a member is missing or counted twice."""
    Mark.objects.create(name=f"close-{order}", value=str(sorted(numbers)))


@guarded_task(key="ghost:{order}")
def ghost(order: int) -> None:
    """Asked for in transactions that roll back: never to be seen."""
    Mark.objects.create(name=f"ghost-{order}")


def start_chain(order: int) -> None:
    """Both steps of a chain."""
    chain(first.s(order), second.s()).delay()


def start_chord(order: int) -> None:
    """Three members and the body."""
    chord([member.s(order, number) for number in range(3)], close.s(order)).delay()


KINDS: dict[str, tuple[Callable[[int], object], int]] = {
    "invoice": (invoice.delay, 40),
    "flaky": (flaky.delay, 14),
    "keyed": (keyed.delay, 12),
    "asked": (asked.delay, 12),
    "chain": (start_chain, 8),
    "chord": (start_chord, 5),
    "slow": (slow.delay, 4),
    "ghost": (ghost.delay, 5),
}
"""What an order of each kind asks for, and how many of a hundred are of it."""
