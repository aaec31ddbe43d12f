"""The shop's site as its customers see it: over HTTP, from a process of its own."""

import contextlib
import dataclasses
import json
from http.client import HTTPConnection

import psycopg


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> dict[str, object]:
        """The body, decoded."""
        said: dict[str, object] = json.loads(self.body)
        return said


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A running shop and the way into its database."""

    port: int
    database_url: str

    def get(self, path: str) -> Answer:
        """GET."""
        return self._ask("GET", path, None, {})

    def order(self, wish: object, key: str = "") -> Answer:
        """POST an order as JSON."""
        headers = {"Idempotency-Key": key} if key else {}
        return self._ask("POST", "/orders/", json.dumps(wish).encode(), headers)

    def post(self, path: str, body: bytes, **headers: str) -> Answer:
        """POST anything."""
        return self._ask("POST", path, body, headers)

    def rows(self, question: str) -> list[tuple[object, ...]]:
        """What the database answers."""
        with contextlib.closing(psycopg.connect(self.database_url, autocommit=True)) as db:
            return db.execute(question.encode()).fetchall()

    def _ask(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> Answer:
        line = HTTPConnection("127.0.0.1", self.port, timeout=20)
        with contextlib.closing(line):
            line.request(method, path, body, headers)
            answer = line.getresponse()
            return Answer(status=answer.status, headers=dict(answer.headers), body=answer.read())
