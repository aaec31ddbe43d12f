"""``manage.py guard_resume``: end what guard_pause began."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from celery_guard.enqueue.steering.turning import turn_off
from celery_guard.management.command import GuardCommand
from celery_guard.management.terms import whoever
from celery_guard.relay.broker_app import ledgers, site_app
from celery_guard.watch.paused import Shown, as_json, in_force

NOTHING = 1


class Command(GuardCommand):
    """Ends switches by number or by what they name; what they held runs within a second or two.

    The exit code is 1 when nothing was ended.
    """

    help = "End switches that hold, refuse or demote jobs (exit code 1: there was nothing to end)."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """The options."""
        parser.add_argument("switch", nargs="*", type=int, help="number of a switch")
        parser.add_argument("--lane", default="", help="switches that name this lane")
        parser.add_argument("--task", default="", help="switches that name this task")
        parser.add_argument("--tenant", default="", help="switches that name this tenant")
        parser.add_argument("--all", action="store_true", help="every switch in force")
        parser.add_argument("--by", default="", help="who (default: the user of this shell)")
        parser.add_argument("--using", action="append", help="database alias (may be repeated)")
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    def handle(self, *args: Any, **options: Any) -> None:
        """End them, and say what still is in force.

        :raises CommandError: with return code 2 when nothing is named, 1 when nothing was ended.
        """
        words = {name: options[name] for name in ("lane", "task", "tenant") if options[name]}
        if sum([bool(options["switch"]), bool(words), options["all"]]) != 1:
            raise CommandError(
                "name switches by number, or --lane, --task, --tenant, or --all; "
                "guard_pause --list shows them",
                returncode=2,
            )
        aliases = options["using"] or ledgers(site_app())
        by = options["by"] or whoever()
        meant = [one for one in in_force(aliases) if _is_meant(one, options["switch"], words)]
        ended = [one for one in meant if turn_off(one.using, [one.id], by=by)]
        left = in_force(aliases)
        if options["json"]:
            told = {"ended": as_json(ended), "switches": as_json(left)}
            self.stdout.write(json.dumps(told))
        else:
            for one in ended:
                self.stdout.write(f"ended: switch {one.id} ({one.action} {one.scope})")
            for one in left:
                self.stdout.write(f"still in force: {one.says}")
        if not ended:
            raise CommandError("there was nothing to end", returncode=NOTHING)


def _is_meant(one: Shown, ids: list[int], words: dict[str, str]) -> bool:
    if ids:
        return one.id in ids
    return all(getattr(one, name) == word for name, word in words.items())
