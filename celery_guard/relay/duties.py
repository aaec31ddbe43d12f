"""Upkeep that somebody has to do now and then: each duty has a leased row, whoever takes it does it.

Every relay looks, and so does the beat task; a duty never runs more often than it says. It does
a bounded piece of work and returns. One that takes longer than three periods (5 to 60 seconds)
is taken for dead with its relay, and somebody else takes it up; so a duty must bear a second
run beside it, but does not meet one in the ordinary course. A duty that promises a time can't wait
for that: it is taken up a period after it was begun, whatever became of that run.
"""

from __future__ import annotations

import dataclasses
import logging
import time
import uuid
from collections.abc import Callable, Collection

from django.db.models import Q

from celery_guard.events import emit
from celery_guard.faults import POINTS, fault_point
from celery_guard.jobs.clock import DatabaseNow, in_seconds
from celery_guard.jobs.deadlock import again_on_deadlock
from celery_guard.jobs.lazily import lazily
from celery_guard.relay.models import Duty

SHORTEST_BUSY, LONGEST_BUSY = 5.0, 60.0

Work = Callable[[str], None]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """A duty by name: ``every()`` is its period in seconds, ``work`` takes a database alias.

    ``alone``: not begun while another run of it may still be at work.
    """

    name: str
    every: Callable[[], float]
    work: Work
    alone: bool = True

    def busy(self) -> float:
        """Seconds after which an unfinished run counts as abandoned."""
        return min(LONGEST_BUSY, max(SHORTEST_BUSY, 3 * self.every()))


_registered: dict[str, Registered] = {}


def duty(name: str, *, every: Callable[[], float], alone: bool = True) -> Callable[[Work], Work]:
    """Register a function of one database alias as upkeep, done every ``every()`` seconds.

    :param alone: wait for a run that may still be at work, or until it counts as abandoned.
    """

    def register(work: Work) -> Work:
        POINTS[f"duty.{name}"] = f"the duty {name} is taken, not begun"
        _registered[name] = Registered(name=name, every=every, work=work, alone=alone)
        return work

    return register


def registered() -> Collection[Registered]:
    """All duties known to this process."""
    return tuple(_registered.values())


class Rota:
    """One process' share of the upkeep of one database."""

    def __init__(self, using: str) -> None:
        self.using = using
        self.owner = uuid.uuid4()
        self._look_at: dict[str, float] = {}
        self._known: set[str] = set()

    def pause(self) -> float:
        """Seconds until this process should look again."""
        soonest = min((self._look_at.get(d.name, 0.0) for d in registered()), default=None)
        return 1.0 if soonest is None else max(0.01, soonest - time.monotonic())

    def do_what_is_due(self) -> list[str]:
        """Do every duty whose time has come and that nobody else is doing; return their names."""
        return [d.name for d in registered() if self._look(d) and self._do(d)]

    def _look(self, duty: Registered) -> bool:
        if self._look_at.get(duty.name, 0.0) > time.monotonic():
            return False
        taken = self._take(duty)
        # Counted from after the taking, or the next look would come a hair too early.
        self._look_at[duty.name] = time.monotonic() + duty.every()
        return taken

    def _take(self, duty: Registered) -> bool:
        rows = Duty.objects.using(self.using)
        if duty.name not in self._known:
            rows.bulk_create([Duty(name=duty.name)], ignore_conflicts=True)
            self._known.add(duty.name)
        due = Q(begun_at=None) | Q(begun_at__lte=in_seconds(-duty.every()))
        free = Q(busy_until=None) | Q(busy_until__lte=DatabaseNow()) if duty.alone else Q()
        # Undone by a crash of the server it is taken up once more, which it bears, as it does without
        # its end: that is an abandoned run. To wait for the disk took longer than all else of an idle relay.
        taken = lazily(rows.filter(due, free, name=duty.name)).update(
            owner=self.owner, begun_at=DatabaseNow(), busy_until=in_seconds(duty.busy())
        )
        return bool(taken)

    def _do(self, duty: Registered) -> bool:
        fault_point(f"duty.{duty.name}")
        mine = Duty.objects.using(self.using).filter(name=duty.name, owner=self.owner)
        try:
            # It bears a second run, so it bears one after a deadlock too.
            again_on_deadlock(lambda: duty.work(self.using), using=self.using)
        # Whatever a duty raises, the others and the relay go on; it is tried again in its time.
        except Exception as error:  # noqa: BLE001
            failed = f"{type(error).__name__}: {error}"
            emit("relay.duty_failed", logging.ERROR, duty=duty.name, error=failed)
            lazily(mine).update(busy_until=None)
            return False
        lazily(mine).update(busy_until=None, done_at=DatabaseNow())
        return True
