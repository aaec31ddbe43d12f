"""The places that the running request holds, until an enqueue consumes them or they go back."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from typing import Any

from django.db import connections, transaction

from celery_guard.conf import guard_settings
from celery_guard.enqueue.admission.models import Reservation
from celery_guard.events import emit
from celery_guard.jobs import direct
from celery_guard.jobs.adding import NewJob

_REMOVE = "DELETE FROM celery_guard_reservation WHERE id = ANY(%s)"


@dataclasses.dataclass(slots=True, kw_only=True, eq=False)
class Place:
    """Room for one job of ``task`` in ``lane``, and how that job is to be enqueued.

    ``id`` is its reservation's, None where no limit counts. ``options`` are Celery's, for a job
    that was let in on terms: another queue, a countdown, an expiry.
    """

    using: str
    task: str
    lane: str
    tenant: str
    id: int | None
    options: dict[str, Any]
    forget_at: float
    spent: bool = False

    def spend(self) -> None:
        """Its job is committed."""
        self.spent = True

    def is_free(self) -> bool:
        """Whether it is not over, and no committed or open transaction has consumed it.

        One that rolled back took its hook with it, and the place is there again.
        """
        if self.forget_at <= time.monotonic():
            return False
        hooks = connections[self.using].run_on_commit
        return not self.spent and not any(hook == self.spend for _, hook, *_ in hooks)


_held: ContextVar[list[Place] | None] = ContextVar("guard_places", default=None)


@contextlib.contextmanager
def holding() -> Iterator[list[Place]]:
    """Inside, places are kept in the list that this yields, in threads of the same context too."""
    places: list[Place] = []
    token = _held.set(places)
    try:
        yield places
    finally:
        _held.reset(token)


def any_held() -> bool:
    """Whether there may be places for an enqueue in this context."""
    return bool(_held.get())


def hold(place: Place) -> None:
    """Keep ``place`` for an enqueue in this context."""
    places = _held.get()
    if places is None:
        _held.set(places := [])
    now = time.monotonic()
    # Outside a request nobody clears up: what can no longer be consumed goes here.
    places[:] = [kept for kept in places if kept.forget_at > now and not kept.spent]
    places.append(place)


def terms(task: str, tenant: Callable[[], str]) -> dict[str, Any]:
    """Celery's options for the next job of ``task``, from the place it is going to take.

    ``tenant`` tells whose job it is; it is asked only where a place for ``task`` has such terms.
    """
    free = [place for place in _held.get() or () if place.task == task and place.is_free()]
    if not any(place.options for place in free):
        return {}
    wanted = tenant()
    return next((place.options for place in free if place.tenant == wanted), {})


def on_terms(task: str) -> bool:
    """Whether a job of ``task`` may find a place with such terms."""
    return any(place.options for place in _held.get() or () if place.task == task)


def place_for(using: str, task: str, lane: str, tenant: str) -> Place | None:
    """The place that such a job is going to use up, None without one."""
    asked = (using, task, lane, tenant)
    for place in _held.get() or ():
        if (place.using, place.task, place.lane, place.tenant) == asked and place.is_free():
            return place
    return None


def consume(using: str, jobs: Iterable[NewJob]) -> None:
    """Use up a place for each of ``jobs``, just written, in the transaction that wrote them."""
    ids = []
    for job in jobs:
        if (place := place_for(using, job.task, job.lane, job.tenant)) is not None:
            consumed(place)
            ids += [place.id] if place.id is not None else []
    if ids and (over := len(ids) - _remove(using, ids)):
        tell_over(using, over)


def consumed(place: Place) -> None:
    """The open transaction has used ``place`` up; with its rollback the place is there again."""
    connection = connections[place.using]
    if not connection.in_atomic_block and not connection.get_autocommit():
        place.spend()  # Transactions by hand have no hooks.
        return
    transaction.on_commit(place.spend, using=place.using, robust=True)


def tell_over(using: str, count: int) -> None:
    """Say that the time of ``count`` places was over, and their room may be another's.

    Their jobs count as unasked for.
    """
    emit("enqueue.place_over", logging.WARNING, using=using, count=count)


def _remove(using: str, ids: list[int]) -> int:
    if connections[using].vendor == "postgresql":
        return direct.changed(connections[using], _REMOVE, (ids,))
    return Reservation.objects.using(using).filter(pk__in=ids).delete()[0]


def forget_after() -> float:
    """When a place taken now is certainly over, on :func:`time.monotonic`'s clock."""
    return time.monotonic() + 2 * guard_settings().admission.hold
