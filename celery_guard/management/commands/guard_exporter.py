"""``manage.py guard_exporter``: metrics, scaling advice and health on an HTTP server of its own."""

from __future__ import annotations

import signal
import threading
from typing import Any

from django.core.management.base import CommandError, CommandParser

from celery_guard.conf import guard_settings
from celery_guard.management.command import GuardCommand
from celery_guard.relay.broker_app import site_app
from celery_guard.watch.exporter import Exporter, is_loopback


class Command(GuardCommand):
    """Serves until TERM or INT. Reachable from this machine only, unless a token is set."""

    help = "Serve /metrics, /scale.json and /healthz for fleets without a web process that does."

    def add_arguments(self, parser: CommandParser) -> None:
        """The options."""
        parser.add_argument("--host", default="127.0.0.1", help="address (default: 127.0.0.1)")
        parser.add_argument("--port", type=int, default=9808, help="port (default: 9808)")

    def handle(self, *args: Any, **options: Any) -> None:
        """Serve.

        :raises CommandError: for an address that others reach while there is no token, and for
            one that cannot be had.
        """
        host, port = options["host"], options["port"]
        if not is_loopback(host) and not guard_settings().metrics_token:
            raise CommandError(
                f"{host} can be reached from elsewhere: set CELERY_GUARD['metrics_token'] first"
            )
        site_app()  # Its tasks name the ledgers.
        try:
            exporter = Exporter(host, port)
        except (OSError, OverflowError) as error:
            why = getattr(error, "strerror", None) or error
            raise CommandError(f"cannot listen on {host}:{port}: {why}") from error
        with exporter:
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, lambda *_: _end(exporter))
            self.stdout.write(f"serving on {host}:{exporter.server_address[1]}")
            self.stdout.flush()
            exporter.serve_forever()


def _end(exporter: Exporter) -> None:
    # From another thread: the loop that is to end runs in the one that the signal interrupts.
    threading.Thread(target=exporter.shutdown).start()
