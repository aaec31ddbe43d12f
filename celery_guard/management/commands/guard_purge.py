"""``manage.py guard_purge``: remove what has ended longer ago than the settings keep it."""

from __future__ import annotations

import dataclasses
import json
from argparse import ArgumentParser
from typing import Any

from celery_guard.management.command import GuardCommand
from celery_guard.relay.broker_app import ledgers, site_app
from celery_guard.relay.purge import Purged, count, walk


class Command(GuardCommand):
    """Walks the whole table once, in steps of 500 rows; safe beside running workers."""

    help = "Remove payloads and rows of jobs that ended longer ago than the retention settings."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """The options."""
        parser.add_argument("--using", action="append", help="database alias (may be repeated)")
        parser.add_argument("--dry-run", action="store_true", help="count, and change nothing")
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    def handle(self, *args: Any, **options: Any) -> None:
        """Purge every ledger, or those named."""
        aliases = options["using"] or ledgers(site_app())
        purged = Purged()
        for using in aliases:
            purged += count(using) if options["dry_run"] else walk(using, 0)[1]
        if options["json"]:
            self.stdout.write(json.dumps(dataclasses.asdict(purged)))
            return
        would = "would be " if options["dry_run"] else ""
        self.stdout.write(
            f"{purged.payloads} payloads {would}emptied, {purged.rows} rows {would}removed"
        )
