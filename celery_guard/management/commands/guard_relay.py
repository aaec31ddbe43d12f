"""``manage.py guard_relay``: carry promises to the broker until told to stop."""

from __future__ import annotations

import signal
import threading
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError

from celery_guard.management.command import GuardCommand
from celery_guard.relay.broker_app import ledgers, load_app, load_tasks
from celery_guard.relay.desk import Desk
from celery_guard.relay.floor import relay_once
from celery_guard.relay.host import die_with_parent, read_worker
from celery_guard.relay.loop import Relay
from celery_guard.watch.paused import unknown_lane


class Command(GuardCommand):
    """Runs one relay per database that holds a ledger. Any number may run at once."""

    help = "Send due jobs to the broker. Any number may run at once; one leads each lane."
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        """The options."""
        parser.add_argument("--using", action="append", help="database alias (may be repeated)")
        parser.add_argument("--lanes", help="only these lanes, separated by commas")
        parser.add_argument("--app", default="", help="the Celery app, as proj.celery:app")
        parser.add_argument("--once", action="store_true", help="send what is due, then end")
        parser.add_argument("--liveness-file", type=Path, help="touched while the relay works")
        parser.add_argument("--parent", type=int, help="end when this process is gone")
        parser.add_argument("--worker", help="the hosting worker, as JSON")
        parser.add_argument("--desk", type=int, help="the file descriptor shared with it")

    def handle(self, *args: Any, **options: Any) -> None:
        """Run until TERM or INT; then take back what was not published and exit with 0."""
        try:
            app = load_app(options["app"])
        except (ImportError, AttributeError) as error:
            raise CommandError(f"--app {options['app']!r}: {error}", returncode=2) from error
        if app.main == "default" and not app.conf.broker_url:
            # Celery's own stand-in would publish to a broker that nobody meant.
            raise CommandError(
                "there is no Celery app: import it in your project's __init__.py, or pass "
                "--app proj.celery:app"
            )
        load_tasks(app)
        aliases = options["using"] or ledgers(app)
        lanes = [name for name in (options["lanes"] or "").split(",") if name] or None
        for name in lanes or ():
            # It may be a queue outside all lanes, which is served like one.
            for fault in unknown_lane(name, ()):
                self.stderr.write(f"{fault} It is served as a queue outside all lanes.")
        if options["once"]:
            for using in aliases:
                relay_once(using, app=app, lanes=lanes)
            return
        if options["parent"]:
            die_with_parent()
        worker = read_worker(options["worker"])
        desk = None if options["desk"] is None else Desk(options["desk"])
        run_all(
            [
                Relay(
                    using,
                    app,
                    lanes=lanes,
                    liveness=options["liveness_file"],
                    worker=worker,
                    parent=options["parent"],
                    desk=desk,
                )
                for using in aliases
            ]
        )


def run_all(relays: Sequence[Relay]) -> None:
    """Run ``relays``, the first in this thread, until a signal ends them all."""

    def stop(*_: object) -> None:
        for relay in relays:
            relay.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    others = [threading.Thread(target=relay.run, daemon=True) for relay in relays[1:]]
    for other in others:
        other.start()
    relays[0].run()
    # Also when the first ended because its parent is gone.
    stop()
    for other in others:
        other.join()
