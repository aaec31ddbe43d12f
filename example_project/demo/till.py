"""Talking to the payment provider from the outside: its faults to come, and what it counted."""

import contextlib
import json
from http.client import HTTPConnection

from demo.provider.faults import Fault


class Till:
    """A hand on the provider's control addresses."""

    def __init__(self, port: int) -> None:
        self._port = port

    def expect(self, faults: list[Fault], *, first: bool = False) -> None:
        """Put ``faults`` behind those to come, or before them; each charge request meets one."""
        said = [{"kind": fault.kind.value, "seconds": fault.seconds} for fault in faults]
        self._ask("POST", "/faults/first" if first else "/faults", said)

    def calm(self) -> None:
        """No more faults."""
        self._ask("DELETE", "/faults")

    def counts(self) -> dict[str, int]:
        """Charges applied, requests, repeats, requests per kind of fault, and those in flight."""
        return {name: int(str(count)) for name, count in self._ask("GET", "/counts").items()}

    def charges(self) -> list[tuple[int, float]]:
        """Order and time of every applied charge."""
        charges = self._ask("GET", "/charges")["charges"]
        assert isinstance(charges, list)
        return [(int(charge["order_id"]), float(charge["applied_at"])) for charge in charges]

    def _ask(self, method: str, path: str, body: object = None) -> dict[str, object]:
        line = HTTPConnection("127.0.0.1", self._port, timeout=10)
        with contextlib.closing(line):
            line.request(method, path, json.dumps(body) if body is not None else None)
            answer = line.getresponse()
            said: dict[str, object] = json.loads(answer.read())
        if answer.status != 200:
            raise ValueError(f"the provider answered {answer.status}: {said}")
        return said
