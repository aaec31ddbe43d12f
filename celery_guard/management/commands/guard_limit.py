"""``manage.py guard_limit``: other limits for a dependency, set while the site runs."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from collections.abc import Iterator
from typing import Any

from django.core.management.base import CommandError

from celery_guard.conf import guard_settings
from celery_guard.management.command import GuardCommand
from celery_guard.management.terms import add_terms, seconds_in, terms_faults, whoever
from celery_guard.relay.limits.changing import end_limits, limit_faults, set_limits
from celery_guard.relay.limits.models import LimitChange
from celery_guard.watch.limits import as_json, limits_now


class Command(GuardCommand):
    """Sets or ends the limits of one dependency, or lists what holds.

    They hold in every process within a second or so. Calls that are under way go on, and what was
    used of a rate stays used. What is not named is as in the settings.
    """

    help = "Set the rate, burst or concurrency of a dependency for a time; alone: list what holds."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """The options."""
        parser.add_argument("dependency", nargs="?", default="", help="its name in the settings")
        parser.add_argument("--rate", default="", help='5/s, 100/m, or several: "10/s, 5000/h"')
        parser.add_argument("--burst", default="", help="calls at once, for each rate or for all")
        parser.add_argument("--concurrency", type=int, help="calls under way at the same time")
        add_terms(parser, what="the limit", times="30m, 2h, 7d, at most 30d")
        parser.add_argument("--end", action="store_true", help="let the settings hold again")
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    def handle(self, *args: Any, **options: Any) -> None:
        """Set, end or list.

        :raises CommandError: with return code 2 and every fault of the call, nothing was changed;
            1 where there was nothing to end.
        """
        if options["dependency"] or options["end"]:
            self._change(options)
        shown = limits_now()
        if options["json"]:
            self.stdout.write(json.dumps({"limits": as_json(shown)}))
            return
        for one in shown:
            self.stdout.write(one.says)
        if not shown:
            self.stdout.write("the settings name no dependency")

    def _change(self, options: dict[str, Any]) -> None:
        if faults := list(_faults(options)):
            raise CommandError("; ".join(faults), returncode=2)
        using, name = guard_settings().using, options["dependency"]
        by = options["by"] or whoever()
        if options["end"]:
            if not end_limits(using, [name], by=by):
                raise CommandError(f"nothing is set for {name}", returncode=1)
            return
        try:
            set_limits(
                using,
                dependency=name,
                rate=options["rate"],
                burst=options["burst"],
                concurrency=options["concurrency"],
                reason=options["reason"],
                author=by,
                seconds=seconds_in(options["time"]) or 0.0,
            )
        except ValueError as error:
            raise CommandError(str(error), returncode=2) from error


def _faults(options: dict[str, Any]) -> Iterator[str]:
    named = {name: options[name] for name in ("rate", "burst", "concurrency")}
    if not options["end"]:
        yield from limit_faults(LimitChange(dependency=options["dependency"], **named))
        yield from terms_faults(options)
    elif not options["dependency"]:
        yield "name the dependency whose limits end"
    elif any(named.values()):
        yield "name limits or --end, not both"
