"""``manage.py guard_mode``: how much of the guard a task's calls get, set while the site runs."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from collections.abc import Iterator
from typing import Any

from celery import Celery
from django.core.management.base import CommandError

from celery_guard.enqueue.rollout.turning import end_stages, set_stage
from celery_guard.management.command import GuardCommand
from celery_guard.management.terms import add_terms, seconds_in, terms_faults, whoever
from celery_guard.relay.broker_app import ledgers, site_app
from celery_guard.watch.modes import as_json, modes_now, stage_faults
from celery_guard.watch.paused import unknown_task


class Command(GuardCommand):
    """Sets or ends the stage of one task, or lists what counts.

    It counts in every process within a second. Jobs that are there go on under the mode that they
    were asked for.
    """

    help = "Set how much of the guard a task's calls get (off … on); alone: list what counts."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """The options."""
        parser.add_argument("task", nargs="?", default="", help="the task, by its full name")
        parser.add_argument(
            "mode", nargs="?", default="", help="off, observe, compare, canary:10 (per cent) or on"
        )
        add_terms(parser, what="the mode", times="2h, 7d, at most 90d")
        parser.add_argument("--end", action="store_true", help="let the settings count again")
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    def handle(self, *args: Any, **options: Any) -> None:
        """Set, end or list.

        :raises CommandError: with return code 2 and every fault of the call, nothing was changed;
            1 where there was nothing to end.
        """
        app = site_app()
        if options["task"]:
            self._change(app, options)
        shown = modes_now(app, ledgers(app))
        if options["json"]:
            self.stdout.write(json.dumps({"modes": as_json(shown)}))
            return
        for one in shown:
            self.stdout.write(one.says)
        if not shown:
            self.stdout.write("every task is on, by the settings")

    def _change(self, app: Celery, options: dict[str, Any]) -> None:
        if faults := list(_faults(app, options)):
            raise CommandError("; ".join(faults), returncode=2)
        name, by = options["task"], options["by"] or whoever()
        task: Any = app.tasks[name]
        using = task.guard.alias
        if options["end"]:
            if not end_stages(using, [name], by=by):
                raise CommandError(f"nothing is set for {name}", returncode=1)
            return
        seconds = seconds_in(options["time"]) or 0.0
        try:
            set_stage(
                using,
                task=name,
                stage=options["mode"],
                reason=options["reason"],
                author=by,
                seconds=seconds,
            )
        except ValueError as error:
            raise CommandError(str(error), returncode=2) from error


def _faults(app: Celery, options: dict[str, Any]) -> Iterator[str]:
    task: Any = app.tasks.get(options["task"])
    if task is None:
        yield from unknown_task(options["task"], app)
    elif getattr(task, "guard", None) is None:
        yield f"{options['task']} is no guarded task of this site"
        task = None
    if options["end"]:
        if options["mode"]:
            yield "name a mode or --end, not both"
        return
    if not options["mode"]:
        yield 'name the mode: "off", "observe", "compare", "canary:10" or "on"'
    elif task is not None:
        yield from stage_faults(task, options["mode"])
    yield from terms_faults(options)
