"""``python -m demo.provider PORT FILE``: the provider's HTTP side."""

import dataclasses
import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from demo.provider.desk import Answer, Desk
from demo.provider.faults import Forecast
from demo.provider.ledger import Ledger


class Provider(ThreadingHTTPServer):
    """The server with the desk that its handlers share."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, port: int, desk: Desk) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.desk = desk


class Handler(BaseHTTPRequestHandler):
    """The provider's addresses."""

    server: Provider
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """``/charges`` and ``/faults``."""
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        match self.path:
            case "/charges":
                self._charge(body)
            case "/faults" | "/faults/first":
                self._faults(body, first=self.path.endswith("/first"))
            case _:
                self._send(Answer(status=404))

    def do_GET(self) -> None:
        """``/charges`` and ``/counts``."""
        desk = self.server.desk
        match self.path:
            case "/charges":
                charges = [dataclasses.asdict(charge) for charge in desk.ledger.charges()]
                self._send(Answer(status=200, body={"charges": charges}))
            case "/counts":
                counts = {**desk.ledger.counts(), "in_flight": desk.in_flight}
                self._send(Answer(status=200, body=counts))
            case _:
                self._send(Answer(status=404))

    def do_DELETE(self) -> None:
        """``/faults``: good weather."""
        self.server.desk.forecast.clear()
        self._send(Answer(status=200))

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (inherited)
        """Say nothing: the requests are in the ledger."""

    def _charge(self, body: bytes) -> None:
        key = self.headers.get("Idempotency-Key", "")
        if not key:
            self._send(Answer(status=400, body={"error": "an Idempotency-Key header is needed"}))
            return
        answer = self.server.desk.charge(key, body)
        if answer.status:
            self._send(answer)
        else:
            self.close_connection = True

    def _faults(self, body: bytes, *, first: bool) -> None:
        try:
            coming = self.server.desk.forecast.add(json.loads(body), first=first)
        except (ValueError, KeyError, TypeError) as error:
            self._send(Answer(status=400, body={"error": str(error)}))
        else:
            self._send(Answer(status=200, body={"coming": coming}))

    def _send(self, answer: Answer) -> None:
        body = json.dumps(answer.body).encode()
        try:
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        except ConnectionError:
            # The caller was killed or gave up; the ledger has the charge all the same.
            self.close_connection = True


def main() -> None:
    """Serve until killed."""
    desk = Desk(Ledger(Path(sys.argv[2])), Forecast())
    Provider(int(sys.argv[1]), desk).serve_forever()


if __name__ == "__main__":
    main()
