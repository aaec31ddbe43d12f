"""``manage.py guard_replay``: run dead letters again, many at a time, at a pace."""

from __future__ import annotations

import dataclasses
import json
from argparse import ArgumentParser
from collections.abc import Iterable, Sequence
from typing import Any

from django.core.management.base import CommandError

from celery_guard.management.command import GuardCommand
from celery_guard.management.terms import whoever
from celery_guard.rate import parse_rate
from celery_guard.relay.broker_app import ledgers, site_app
from celery_guard.settle.replay import starting
from celery_guard.settle.replay.choosing import Preview, Wanted, preview
from celery_guard.watch.paused import unknown_lane
from celery_guard.watch.replays import as_json, newest
from celery_guard.watch.spoken import spoken

NOTHING = 1
LOOK = 60.0
"""Seconds that a preview may look for dead letters in one ledger."""

Previews = dict[str, Preview]


class Command(GuardCommand):
    """Says what would run again, or starts that, shows how it stands, or ends it.

    The relays do the work; this command only asks for it. The exit code is 1 when there was
    nothing to do.
    """

    help = "Run dead letters again in bulk, at a pace (exit code 1: there was nothing to do)."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """The options."""
        parser.add_argument("--task", default="", help="dead letters of this task")
        parser.add_argument(
            "--group", default="", help="of this group, as guard_stats --dead-letters names it"
        )
        parser.add_argument("--lane", default="", help="of this lane")
        parser.add_argument("--tenant", default="", help="of this tenant")
        parser.add_argument("--preview", action="store_true", help="only say what would run")
        parser.add_argument("--pace", default=starting.PACE, help="how fast (10/s)")
        parser.add_argument("--reason", default="", help="why; kept with the replay")
        parser.add_argument("--by", default="", help="who (default: the user of this shell)")
        parser.add_argument("--list", action="store_true", help="only say how replays stand")
        parser.add_argument("--cancel", type=int, metavar="ID", help="end this replay")
        parser.add_argument("--using", action="append", help="database alias (may be repeated)")
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    def handle(self, *args: Any, **options: Any) -> None:
        """Do one of the four.

        :raises CommandError: with return code 2 and every fault of the call, 1 for nothing to do.
        """
        aliases = options["using"] or ledgers(site_app())
        if options["list"]:
            self._show(aliases, options)
        elif options["cancel"] is not None:
            self._cancel(aliases, options)
        else:
            self._look_or_start(aliases, options)

    def _look_or_start(self, aliases: Sequence[str], options: dict[str, Any]) -> None:
        wanted = Wanted(
            task=options["task"],
            mark=options["group"],
            lane=options["lane"],
            tenant=options["tenant"],
        )
        if faults := _faults(aliases, wanted, options):
            raise CommandError("; ".join(faults), returncode=2)
        found = {using: preview(using, wanted, LOOK) for using in aliases}
        found = {using: one for using, one in found.items() if one.jobs or not one.whole}
        if options["preview"]:
            self._preview(found, options)
        if not found:
            raise CommandError("there is no such dead letter", returncode=NOTHING)
        if not options["preview"]:
            self._start(found, wanted, options)
            self._show(list(found), options)

    def _start(self, aliases: Iterable[str], wanted: Wanted, options: dict[str, Any]) -> None:
        author = options["by"] or whoever()
        try:
            for using in aliases:
                starting.start(
                    using, wanted, pace=options["pace"], reason=options["reason"], author=author
                )
        except ValueError as error:
            raise CommandError(str(error), returncode=2) from error

    def _preview(self, found: Previews, options: dict[str, Any]) -> None:
        if options["json"]:
            told = [{"using": using, **dataclasses.asdict(one)} for using, one in found.items()]
            self.stdout.write(json.dumps({"preview": told}))
            return
        for using, one in found.items():
            for line in _lines(using, one, parse_rate(options["pace"]).interval):
                self.stdout.write(line)

    def _show(self, aliases: Sequence[str], options: dict[str, Any]) -> None:
        replays = newest(aliases)
        if options["json"]:
            self.stdout.write(json.dumps({"replays": as_json(replays)}))
            return
        for one in replays:
            self.stdout.write(one.says)
            if one.active:
                again = f"--cancel {one.id} --using {one.using}"
                self.stdout.write(f"  -> python manage.py guard_replay {again}")
        if not replays:
            self.stdout.write("nothing was ever replayed in bulk")

    def _cancel(self, aliases: Sequence[str], options: dict[str, Any]) -> None:
        if len(aliases) > 1:
            raise CommandError("say in which ledger: --using ALIAS", returncode=2)
        if not starting.cancel(aliases[0], options["cancel"], by=options["by"] or whoever()):
            raise CommandError("there is no such replay under way", returncode=NOTHING)
        self._show(aliases, options)


def _lines(using: str, found: Preview, interval: float) -> Iterable[str]:
    least = "" if found.whole else "at least "
    yield f"{using}: {least}{found.jobs} dead letters, {spoken(found.jobs * interval)} at this pace"
    yield from (f"  {count} of {task}" for task, count in found.by_task.items())
    if found.asking:
        yield f"  {found.asking} stay: an effect has no answer; settle it in the admin first"
    yield f"  newest: {', '.join(map(str, found.newest))}"


def _faults(aliases: Sequence[str], wanted: Wanted, options: dict[str, Any]) -> list[str]:
    faults = []
    if not wanted.named():
        faults.append("name --task, --group, --lane or --tenant (guard_stats --dead-letters)")
    if not (options["preview"] or options["reason"].strip()):
        faults.append('say why: --reason "…", or look first: --preview')
    try:
        parse_rate(options["pace"])
    except ValueError as error:
        faults.append(f"--pace {options['pace']!r} {error}")
    # A task that is no more may well have dead letters; a lane that is none has not.
    return [*faults, *unknown_lane(wanted.lane, aliases)]
