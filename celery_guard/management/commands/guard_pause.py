"""``manage.py guard_pause``: hold, refuse or demote jobs of a lane, a task or a tenant, now."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from collections.abc import Collection
from typing import Any

from celery import Celery
from django.core.management.base import CommandError

from celery_guard.enqueue.steering.models import Action
from celery_guard.enqueue.steering.turning import turn_on
from celery_guard.management.command import GuardCommand
from celery_guard.management.terms import add_terms, seconds_in, terms_faults, whoever
from celery_guard.relay.broker_app import ledgers, site_app
from celery_guard.watch.paused import as_json, in_force, unknown_lane, unknown_task


class Command(GuardCommand):
    """Turns a switch on in every ledger, or lists those in force.

    It works on every relay and worker within a second, and ends by itself. Running jobs go on.
    """

    help = "Hold the jobs of a lane, task or tenant; or --refuse, or --demote, new ones."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """The options."""
        parser.add_argument("--lane", default="", help="jobs of this lane")
        parser.add_argument("--task", default="", help="jobs of this task, by its full name")
        parser.add_argument("--tenant", default="", help="jobs of this tenant")
        parser.add_argument("--all", action="store_true", help="every job there is")
        add_terms(parser, what="the switch", times="90s, 30m, 2h, at most 7d")
        instead = parser.add_mutually_exclusive_group()
        instead.add_argument("--refuse", action="store_true", help="refuse new requests instead")
        instead.add_argument(
            "--demote", action="store_true", help="send new jobs to the next lower lane instead"
        )
        parser.add_argument("--list", action="store_true", help="only say what is in force")
        parser.add_argument("--using", action="append", help="database alias (may be repeated)")
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    def handle(self, *args: Any, **options: Any) -> None:
        """Turn the switch on and say how to end it.

        :raises CommandError: with return code 2 and every fault of the call; nothing was changed.
        """
        app = site_app()
        aliases = options["using"] or ledgers(app)
        if not options["list"]:
            self._turn_on(app, aliases, options)
        shown = in_force(aliases)
        if options["json"]:
            self.stdout.write(json.dumps({"switches": as_json(shown)}))
            return
        for one in shown:
            self.stdout.write(one.says)
            self.stdout.write(f"  -> python manage.py guard_resume {one.id}")
        if not shown:
            self.stdout.write("nothing is paused")

    def _turn_on(self, app: Celery, aliases: Collection[str], options: dict[str, Any]) -> None:
        if faults := _faults(app, aliases, options):
            raise CommandError("; ".join(faults), returncode=2)
        try:
            for using in aliases:
                turn_on(
                    using,
                    action=_action(options),
                    lane=options["lane"],
                    task=options["task"],
                    tenant=options["tenant"],
                    reason=options["reason"],
                    author=options["by"] or whoever(),
                    seconds=seconds_in(options["time"]) or 0.0,
                )
        except ValueError as error:
            raise CommandError(str(error), returncode=2) from error


def _action(options: dict[str, Any]) -> Action:
    if options["refuse"]:
        return Action.REFUSE
    return Action.DEMOTE if options["demote"] else Action.HOLD


def _faults(app: Celery, aliases: Collection[str], options: dict[str, Any]) -> list[str]:
    faults = []
    named = any(options[name] for name in ("lane", "task", "tenant"))
    if named == options["all"]:
        faults.append("name --lane, --task or --tenant, or --all and none of them")
    faults += terms_faults(options)
    faults += unknown_lane(options["lane"], aliases)
    return [*faults, *unknown_task(options["task"], app)]
