"""Curves as the points of a small SVG, drawn by the server."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from celery_guard.watch.models import LaneSample

WIDTH, HEIGHT = 240, 40
MINUTES = 60


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """``path`` is an SVG path in a box of ``WIDTH`` by ``HEIGHT``; empty where nothing is known.

    ``top`` is the value at the upper edge.
    """

    path: str
    top: float


def curve(
    samples: Sequence[LaneSample],
    value: Callable[[LaneSample], float],
    *,
    until: datetime,
    top: float = 0.0,
) -> Curve:
    """The last hour of ``value``; a minute that nobody measured leaves a gap."""
    first = until - timedelta(minutes=MINUTES)
    places = {int((s.minute - first).total_seconds() // 60): value(s) for s in samples}
    places = {place: found for place, found in places.items() if 0 <= place <= MINUTES}
    top = max((top, *places.values()), default=0.0) or 1.0
    steps = (
        f"{'L' if place - 1 in places else 'M'}{_x(place):.1f} {_y(places[place], top):.1f}"
        for place in sorted(places)
    )
    return Curve(path=" ".join(steps), top=top)


def height_of(value: float, top: float) -> str:
    """Where a level line of ``value`` is, from the upper edge."""
    return f"{_y(min(value, top), top):.1f}"


def _x(place: int) -> float:
    return place * WIDTH / MINUTES


def _y(value: float, top: float) -> float:
    # A pixel of room at both edges, or the line would be cut in half there.
    return 1 + (HEIGHT - 2) * (1 - value / top)
