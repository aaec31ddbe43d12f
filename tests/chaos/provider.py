"""A payment provider that counts: `python -m tests.chaos.provider PORT SEED`.

It is never killed. Now and then it applies a charge and loses the answer, answers too late, fails
before applying, or asks for patience. ``POST /charge`` with ``keyed`` honours its key; without, a
second call is a second charge.
"""

import json
import random
import sys
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

FATES = ("fine", "lost", "late", "down", "busy")
WEIGHTS = (60, 14, 4, 11, 11)
LATE = 1.5
"""Seconds; the clients wait for one."""


class Books:
    """What was applied, by key and by order."""

    def __init__(self, seed: int) -> None:
        self.applied: Counter[str] = Counter()
        self.orders: Counter[str] = Counter()
        self.calls = 0
        self._random = random.Random(seed)
        self._lock = threading.Lock()

    def charge(self, key: str, order: int, *, keyed: bool) -> str:
        """Apply a charge, or not; how the caller hears of it."""
        with self._lock:
            self.calls += 1
            fate = self._random.choices(FATES, WEIGHTS)[0]
            if fate not in ("down", "busy") and not (keyed and key in self.applied):
                self.applied[key] += 1
                self.orders[str(order)] += 1
        return fate


class Desk(BaseHTTPRequestHandler):
    """``POST /charge``, ``GET /charge/<key>``, ``GET /books``."""

    books: Books

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        fate = self.books.charge(asked["key"], asked["order"], keyed=asked["keyed"])
        if fate == "lost":
            self.close_connection = True
            return
        if fate == "late":
            time.sleep(LATE)
        self._say({"fine": 200, "late": 200, "down": 500, "busy": 429}[fate], {"id": asked["key"]})

    def do_GET(self) -> None:
        name = self.path.rpartition("/")[2]
        if name == "books":
            self._say(200, {"orders": self.books.orders, "calls": self.books.calls})
        else:
            self._say(200, {"applied": self.books.applied[name] > 0})

    def _say(self, code: int, what: object) -> None:
        body = json.dumps(what).encode()
        try:
            self.send_response(code)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        except OSError:
            # Whoever asked has been killed meanwhile.
            self.close_connection = True

    def log_message(self, *_: object) -> None:
        """Nothing to say."""


if __name__ == "__main__":
    Desk.books = Books(int(sys.argv[2]))
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Desk).serve_forever()
