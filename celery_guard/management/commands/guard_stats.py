"""``manage.py guard_stats``: is anything late, for people, scripts and health checks."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import Any

from celery import Celery
from django.core.management.base import CommandError, CommandParser

from celery_guard.management.command import GuardCommand
from celery_guard.relay.broker_app import ledgers, site_app
from celery_guard.watch import failures
from celery_guard.watch.health import trouble_in
from celery_guard.watch.lanes import LaneView, oldest_snapshot, read_lanes, stale_after
from celery_guard.watch.ledgers import read_all_lanes
from celery_guard.watch.spoken import spoken

STOPPED = 1
STALE = 2

_HEADINGS = (
    "lane",
    "oldest wait",
    "objective",
    "ready",
    "sent",
    "running",
    "slots",
    "scheduled",
    "retrying",
    "arrive/s",
    "end/s",
    "dead",
)

_LETTERS = ("dead letters of", "jobs", "error", "group")


class Command(GuardCommand):
    """Prints the newest snapshot of each lane.

    The exit code is 0 when all is well, 1 when jobs wait past their lane's objective and nothing
    starts or runs there, 2 when the snapshot is stale or was never taken: then no other number
    counts.
    """

    help = "Print each lane's age, depth and rates (exit code 1: nothing starts, 2: stale)."

    def add_arguments(self, parser: CommandParser) -> None:
        """The options."""
        parser.add_argument("--json", action="store_true", help="print one JSON object")
        parser.add_argument(
            "--dead-letters", action="store_true", help="and what the newest dead letters share"
        )
        parser.add_argument(
            "--using", default="", help="database alias of one ledger (default: all)"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Print, then say by the exit code how it is.

        :raises CommandError: with return code 1 or 2.
        """
        app = site_app()
        lanes = read_lanes(options["using"]) if options["using"] else read_all_lanes()
        found = _dead_letters(app, options["using"]) if options["dead_letters"] else None
        if options["json"]:
            letters = {} if found is None else {"dead_letters": _plain(found)}
            self.stdout.write(json.dumps({**as_json(lanes), **letters}))
        else:
            for line in [*table(lanes), *([] if found is None else letter_table(found))]:
                self.stdout.write(line)
        if (trouble := trouble_in(lanes)) is not None:
            code = STOPPED if trouble.kind == "stopped" else STALE
            raise CommandError(trouble.says, returncode=code)


def as_json(lanes: Sequence[LaneView]) -> dict[str, object]:
    """The snapshot as plain values; ages are in seconds."""
    age = oldest_snapshot(lanes)
    return {
        "stale": age is None or age > stale_after(),
        "snapshot_age": age,
        "lanes": [
            {**dataclasses.asdict(lane), "taken_at": lane.taken_at.isoformat()} for lane in lanes
        ],
    }


Found = dict[str, list[failures.Group]]


def _dead_letters(app: Celery, using: str) -> Found:
    aliases = [using] if using else ledgers(app)
    return {alias: failures.groups(alias) for alias in aliases}


def _plain(found: Found) -> list[dict[str, object]]:
    return [one for using, group in found.items() for one in failures.as_json(using, group)]


def letter_table(found: Found) -> list[str]:
    """The largest groups of dead letters as aligned lines; the last column names the group."""
    groups = sorted((g for some in found.values() for g in some), key=lambda group: -group.count)
    if not groups:
        return ["no dead letters among the newest failures"]
    rows = [_LETTERS, *((g.task, str(g.count), g.error, g.mark) for g in groups)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_LETTERS))]
    return ["", *("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)]


def table(lanes: Sequence[LaneView]) -> list[str]:
    """The snapshot as aligned lines, the age of the measurement last."""
    rows = [_HEADINGS, *(_cells(lane) for lane in lanes)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS))]
    lines = ["  ".join(_aligned(row, widths)).rstrip() for row in rows]
    age = oldest_snapshot(lanes)
    return lines if age is None else [*lines, f"measured {spoken(age)} ago"]


def _aligned(row: Sequence[str], widths: Sequence[int]) -> list[str]:
    numbers = [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
    return [row[0].ljust(widths[0]), *numbers]


def _cells(lane: LaneView) -> tuple[str, ...]:
    return (
        lane.name,
        spoken(lane.age) + (" LATE" if lane.late else ""),
        spoken(lane.objective),
        f"{lane.ready}{'+' if lane.capped else ''}",
        str(lane.sent),
        str(lane.running),
        str(lane.slots),
        str(lane.scheduled),
        str(lane.retrying),
        f"{lane.arrivals:.1f}",
        f"{lane.completions:.1f}",
        "?" if lane.dead_letters is None else str(lane.dead_letters),
    )
