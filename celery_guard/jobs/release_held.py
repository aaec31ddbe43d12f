"""The release of a lane in which some jobs may not go: those are put aside, the others go.

They are held by a switch, or call a dependency that has no room for them yet. Slower than the
ordinary release, and used only while there are such. Every such job is met once and moved away
from the head, so 10,000 of them cost 20 looks, not 20 a release.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from django.db import connections, transaction

from celery_guard.jobs import heads, pausing, sharing
from celery_guard.jobs.following import Key
from celery_guard.jobs.models import Job
from celery_guard.jobs.pausing import Switched
from celery_guard.jobs.placing import PLACED, Place, Placing, give_places
from celery_guard.jobs.release_portably import leads, mark
from celery_guard.jobs.sending import Lead, Sending
from celery_guard.jobs.sharing import HEAD_ONLY, Stretch
from celery_guard.jobs.states import Reason

LOOK = 500
"""Rows of the lane's head that one round looks at."""
LOOK_EACH = 100
"""The same of each tenant's, where tenants take turns."""
ROUNDS = 20
"""Most rounds of one release that only put jobs aside under a hold."""
ROUNDS_PLACING = 5
"""The same where each gets a place of its own: the other lanes wait meanwhile."""


_COLUMNS = ("pk", "task", "tenant", "coalesce_key", "dependency", "reason")


class Row(NamedTuple):
    """A due job as this release sees it."""

    pk: int
    task: str
    tenant: str
    key: str | None
    dependency: str
    reason: str


def release(
    using: str,
    lead: Lead,
    batch: int,
    window: int | None,
    expired: str,
    shares: Mapping[str, int] | None = None,
    nobodys: Stretch = HEAD_ONLY,
    *,
    steered: bool = True,
    placing: Placing | None = None,
    among: Mapping[int, str] | None = None,
) -> tuple[list[Sending], set[Key]]:
    """See :func:`celery_guard.jobs.release_portably.release`; what may not go is not sent."""
    for _ in range(ROUNDS if placing is None else ROUNDS_PLACING):
        with transaction.atomic(using=using):
            # Before any job: everybody locks switches first.
            holds = pausing.holds_in_force(using) if steered else []
            if any(hold.closes(lead.lane) for hold in holds):
                return [], set()
            if not leads(using, lead).exists():
                return [], set()
            room = _room(using, lead.lane, batch, window, shares)
            rows = _locked(using, lead.lane, room, shares, nobodys, among)
            free = _without_held(using, lead.lane, rows, holds)
            choice = _Choice(room, dict(shares) if shares is not None else None, placing)
            choice.choose(free)
            give_places(using, choice.aside)
            if choice.chosen or len(free) - len(choice.aside) == len(rows):
                return mark(using, choice.alone, expired), choice.keys
    return [], set()


def _room(
    using: str, lane: str, batch: int, window: int | None, shares: Mapping[str, int] | None
) -> int:
    if shares is not None or window is None:
        return batch
    return max(0, min(batch, window - sharing.held(using, lane).count()))


def _locked(
    using: str,
    lane: str,
    room: int,
    shares: Mapping[str, int] | None,
    nobodys: Stretch,
    among: Mapping[int, str] | None,
) -> list[Row]:
    if room == 0:
        return []
    if shares is not None:
        each = {tenant: max(share, LOOK_EACH) for tenant, share in shares.items()}
        shared = heads.locked(using, lane, each, nobodys, *_COLUMNS, among=among)
        return [Row(*row) for row in shared]
    due = sharing.due(using, lane)
    if among is not None:
        due = due.filter(pk__in=list(among))
    skips = connections[using].features.has_select_for_update_skip_locked
    rows = due.order_by("sent_at", "due_at").select_for_update(skip_locked=skips)
    return [Row(*row) for row in rows.values_list(*_COLUMNS)[: max(LOOK, room)]]


def _without_held(
    using: str, lane: str, rows: Sequence[Row], holds: Sequence[Switched]
) -> list[Row]:
    aside: dict[datetime, list[int]] = {}
    free = []
    for row in rows:
        if (due := pausing.until(holds, lane, row.task, row.tenant)) is None:
            free.append(row)
        else:
            aside.setdefault(due, []).append(row.pk)
    for due, ids in aside.items():
        pausing.put_aside(Job.objects.using(using).filter(pk__in=ids), due)
    return free


@dataclasses.dataclass(slots=True)
class _Choice:
    """Which of the free rows go, and which get a place first."""

    room: int
    shares: dict[str, int] | None
    placing: Placing | None
    chosen: list[Row] = dataclasses.field(default_factory=list)
    aside: list[tuple[int, Place]] = dataclasses.field(default_factory=list)
    _known: dict[Key, Place | None] = dataclasses.field(default_factory=dict)

    def choose(self, rows: Iterable[Row]) -> None:
        """Go through ``rows``, the oldest first."""
        for row in rows:
            if (place := self._place(row)) is not None:
                self.aside.append((row.pk, place))
            elif self._fits(row):
                self._count(row)
                self.chosen.append(row)

    @property
    def alone(self) -> list[int]:
        """Those that are sent as they are."""
        return [row.pk for row in self.chosen if row.key is None]

    @property
    def keys(self) -> set[Key]:
        """The coalesce keys of the others."""
        return {(row.task, row.key) for row in self.chosen if row.key is not None}

    def _place(self, row: Row) -> Place | None:
        # One that asks after a call of its own makes none.
        if self.placing is None or not row.dependency or row.reason in _ASKING:
            return None
        if row.key is None:
            return self._next_place(row, self.placing)
        # All requests of a key make one call.
        key = (row.task, row.key)
        if key not in self._known:
            self._known[key] = self._next_place(row, self.placing)
        return self._known[key]

    def _next_place(self, row: Row, placing: Placing) -> Place | None:
        if placing.closed(row.dependency):
            return placing.place(row.dependency)
        if row.reason in PLACED or placing.may_go(row.dependency):
            return None
        return placing.place(row.dependency)

    def _fits(self, row: Row) -> bool:
        if self.shares is None:
            self.room -= 1
            return self.room >= 0
        self.shares[row.tenant] = self.shares.get(row.tenant, 0) - 1
        return self.shares[row.tenant] >= 0

    def _count(self, row: Row) -> None:
        if self.placing is not None and row.dependency and row.reason not in PLACED:
            self.placing.go(row.dependency)


_ASKING = (Reason.UNCERTAIN, Reason.ECHO)
