"""``manage.py guard_scale``: how many workers to run, for people and scripts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from django.core.management.base import CommandError, CommandParser

from celery_guard.management.command import GuardCommand
from celery_guard.relay.broker_app import site_app
from celery_guard.watch.lanes import LaneView
from celery_guard.watch.ledgers import read_all_lanes
from celery_guard.watch.scale import Stale, advised, as_json

STALE = 2


class Command(GuardCommand):
    """Prints the scaling advice of the newest snapshot.

    The exit code is 2, and nothing is printed, when the snapshot is stale or was never taken:
    keep what you run.
    """

    help = "Print how many workers each lane needs (exit code 2: stale, keep what runs)."

    def add_arguments(self, parser: CommandParser) -> None:
        """The options."""
        parser.add_argument("--json", action="store_true", help="print one JSON object")
        parser.add_argument("--lane", default="", help="one lane only; without --json, its number")

    def handle(self, *args: Any, **options: Any) -> None:
        """Print.

        :raises CommandError: with return code 2 when there is no advice that counts.
        """
        site_app()  # Its tasks name the ledgers.
        try:
            lanes = advised(read_all_lanes(), only=options["lane"])
        except Stale as error:
            raise CommandError(str(error), returncode=STALE) from error
        if options["json"]:
            self.stdout.write(json.dumps(as_json(lanes)))
        elif options["lane"]:
            self.stdout.write(str(lanes[0].desired_workers))
        else:
            for line in _lines(lanes):
                self.stdout.write(line)


def _lines(lanes: Sequence[LaneView]) -> list[str]:
    return [
        f"{lane.name}: {lane.desired_workers} workers"
        + (f" ({lane.desired_uncapped} but for {lane.limited_by})" if _capped(lane) else "")
        + f", {lane.workers} run"
        for lane in lanes
    ]


def _capped(lane: LaneView) -> bool:
    return lane.limited_by not in ("", "none")
