"""A small HTTP server of its own for the numbers, for fleets whose web processes serve none.

It reads what the upkeep has measured, as the pages of the web process do, and nothing else. At most
``AT_ONCE`` requests are answered at a time, each connection has ``PATIENCE`` seconds for every read and write,
and a database that does not answer holds a request for the collector's time-out only.
"""

from __future__ import annotations

import http.server
import ipaddress
import json
import logging
import secrets
import socket
import sys
import threading
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs, urlsplit

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from celery_guard.conf import guard_settings
from celery_guard.events import emit
from celery_guard.watch.health import trouble_in
from celery_guard.watch.prometheus import GuardCollector
from celery_guard.watch.scale import Stale, advised, as_json

AT_ONCE = 8
PATIENCE = 5.0
TEXT = "text/plain; charset=utf-8"


class Exporter(http.server.ThreadingHTTPServer):
    """Serves ``/metrics``, ``/scale.json`` and ``/healthz``.

    The first two ask for ``Authorization: Bearer <metrics_token>`` where that is set. The health
    answers everybody, with one word.
    """

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, host: str, port: int) -> None:
        self.collector = GuardCollector()
        # Its own: the process' default registry belongs to whoever runs more in it.
        self.registry = CollectorRegistry()
        self.registry.register(self.collector)
        self._room = threading.BoundedSemaphore(AT_ONCE)
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), _Answer)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread, or close the connection where too many are being answered."""
        if not self._room.acquire(blocking=False):
            emit("watch.exporter_full", logging.WARNING, at_once=AT_ONCE)
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """As it is, and make room afterwards."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is none of our trouble; what else fails is, and is said."""
        error = sys.exc_info()[1]
        level = logging.DEBUG if isinstance(error, OSError) else logging.ERROR
        emit("watch.exporter_failed", level, error=f"{type(error).__name__}: {error}")


class _Answer(http.server.BaseHTTPRequestHandler):
    timeout = PATIENCE
    server: Exporter
    server_version = "celery-guard"
    sys_version = ""

    def do_GET(self) -> None:
        asked = urlsplit(self.path)
        match asked.path:
            case "/healthz":
                trouble = trouble_in(self.server.collector.read())
                self._say(200 if trouble is None else 503, trouble.kind if trouble else "ok")
            case "/metrics" | "/scale.json" if not self._is_allowed():
                self._say(401, "the token is missing or wrong")
            case "/metrics":
                encode, kind = choose_encoder(self.headers.get("Accept", ""))
                self._send(200, encode(self.server.registry), kind)
            case "/scale.json":
                self._scale(parse_qs(asked.query).get("lane", [""])[0])
            case _:
                self._say(404, "there are /metrics, /scale.json and /healthz")

    do_HEAD = do_GET  # noqa: N815 - the name is the library's

    def _scale(self, only: str) -> None:
        try:
            found = advised(self.server.collector.read() or (), only=only)
        except Stale as error:
            self._say(503, str(error))
            return
        self._send(200, json.dumps(as_json(found)).encode(), "application/json")

    def _is_allowed(self) -> bool:
        token = guard_settings().metrics_token
        given = self.headers.get("Authorization", "")
        return not token or secrets.compare_digest(given.encode(), f"Bearer {token}".encode())

    def _say(self, status: int, text: str) -> None:
        self._send(status, f"{text}\n".encode(), TEXT)

    def _send(self, status: int, content: bytes, kind: str) -> None:
        self.send_response(HTTPStatus(status))
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")
        if status == HTTPStatus.UNAUTHORIZED:
            self.send_header("WWW-Authenticate", "Bearer")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is inherited
        # A scrape every few seconds is no news.
        return


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach ``host``."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
