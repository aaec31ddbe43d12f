"""``manage.py guard_doctor``: is this site healthy, and if not, which line mends it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from typing import Any

from celery import Celery
from django.core.management.base import CommandError, CommandParser

from celery_guard.conf import guard_settings
from celery_guard.management.command import GuardCommand
from celery_guard.relay.broker_app import load_app
from celery_guard.watch.checks.tasks import guarded_tasks
from celery_guard.watch.doctor.examine import examine
from celery_guard.watch.doctor.finding import Finding, Level
from celery_guard.watch.doctor.lanes import start_line

_MARKS = {Level.OK: "  ok   ", Level.WARNING: "warning", Level.FAULT: " FAULT "}


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 <= seconds < float("inf"):
        raise ValueError(text)
    return seconds


_seconds.__name__ = "seconds"


class Command(GuardCommand):
    """Looks at settings, databases, broker, relays, workers and upkeep of a running site.

    Sends one small job through every lane, unless told not to. The exit code is 0 when nothing
    is worse than a warning, 1 when there is a fault.
    """

    help = "Examine a running site; say what is wrong and which line mends it (exit code 1: fault)."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        """The options."""
        parser.add_argument("--json", action="store_true", help="print one JSON object")
        parser.add_argument("--no-canary", action="store_true", help="send no job")
        parser.add_argument(
            "--patience", type=_seconds, default=10.0, help="seconds to wait for the canaries (10)"
        )
        parser.add_argument(
            "--workers", action="store_true", help="only print a start line per lane"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Print the findings as they come.

        :raises CommandError: with return code 1 when there is a fault.
        """
        app = load_app()
        guarded_tasks(app)  # Imports them; a finding says where that fails.
        if options["workers"]:
            self._say_how_to_start(app, as_json=options["json"])
            return
        found = examine(app, None if options["no_canary"] else options["patience"])
        seen = self._collect(found) if options["json"] else self._show(found)
        faults = sum(finding.level is Level.FAULT for finding in seen)
        if faults:
            raise CommandError(f"faults: {faults}", returncode=1)

    def _say_how_to_start(self, app: Celery, *, as_json: bool) -> None:
        lines = {name: start_line(app, lane) for name, lane in guard_settings().lanes.items()}
        if as_json:
            self.stdout.write(json.dumps({"workers": lines}))
            return
        for line in lines.values():
            self.stdout.write(line)

    def _collect(self, found: Iterator[Finding]) -> list[Finding]:
        seen = list(found)
        healthy = all(finding.level is Level.OK for finding in seen)
        findings = [dataclasses.asdict(finding) for finding in seen]
        self.stdout.write(json.dumps({"healthy": healthy, "findings": findings}))
        return seen

    def _show(self, found: Iterator[Finding]) -> list[Finding]:
        paint = {
            Level.OK: self.style.SUCCESS,
            Level.WARNING: self.style.WARNING,
            Level.FAULT: self.style.ERROR,
        }
        seen = []
        for finding in found:
            seen.append(finding)
            mark = paint[finding.level](_MARKS[finding.level])
            self.stdout.write(f"{mark}  {finding.what}: {finding.says}")
            if finding.hint:
                self.stdout.write(f"         -> {finding.hint}")
            self.stdout.flush()
        return seen
