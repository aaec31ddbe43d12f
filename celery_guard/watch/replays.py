"""Bulk replays as they are shown to people."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from datetime import datetime

from celery_guard.settle.replay.models import ACTIVE, Replay
from celery_guard.watch.spoken import spoken

SHOWN_MOST = 20


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ShownReplay:
    """One bulk replay of one ledger; ``pace`` is in jobs a second, ``left`` counts what is chosen."""

    using: str
    id: int
    state: str
    scope: str
    pace: float
    reason: str
    author: str
    created_at: datetime
    finished_at: datetime | None
    ended_by: str
    chosen: int
    replayed: int
    skipped: int
    left: int

    @property
    def active(self) -> bool:
        """Whether it can still be cancelled."""
        return self.state in ACTIVE

    @property
    def says(self) -> str:
        """How it stands, in one line."""
        counts = f"{self.replayed} of {self.chosen} replayed, {self.skipped} left alone"
        rest = f", {spoken(self.left / self.pace)} to go" if self.state == "running" else ""
        by = f" by {self.ended_by}" if self.ended_by else ""
        return (
            f"replay {self.id} of {self.scope}: {self.state}{by}, {counts}{rest} "
            f"({self.author}: {self.reason})"
        )


_SAME = tuple(field.name for field in dataclasses.fields(ShownReplay) if field.name != "using")


def newest(aliases: Iterable[str]) -> list[ShownReplay]:
    """The newest replays of each of these ledgers, all that are under way first."""
    found = [shown(using, row) for using in aliases for row in _of(using)]
    return sorted(found, key=lambda one: (not one.active, -one.created_at.timestamp()))


def _of(using: str) -> list[Replay]:
    rows = Replay.objects.using(using)
    # Few are under way at one time; of the others the newest tell enough.
    active = list(rows.filter(state__in=ACTIVE))
    return active + list(rows.exclude(state__in=ACTIVE).order_by("-pk")[:SHOWN_MOST])


def shown(using: str, replay: Replay) -> ShownReplay:
    """One of them."""
    return ShownReplay(using=using, **{name: getattr(replay, name) for name in _SAME})


def as_json(replays: Iterable[ShownReplay]) -> list[dict[str, object]]:
    """The same as plain values."""
    return [
        {
            **dataclasses.asdict(one),
            "created_at": one.created_at.isoformat(),
            "finished_at": one.finished_at and one.finished_at.isoformat(),
        }
        for one in replays
    ]
