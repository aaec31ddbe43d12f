"""One charge request, from what was asked to what is answered."""

import dataclasses
import json
import threading
import time
from collections.abc import Mapping

from demo.provider.faults import CALM, Fault, Forecast, Kind
from demo.provider.ledger import Ledger, OtherBodyError


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What goes back; status 0 means that nothing does."""

    status: int
    body: Mapping[str, object] = dataclasses.field(default_factory=dict)
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict)
    repeat: bool = False


class Desk:
    """Takes charge requests; ``in_flight`` says how many are being dealt with."""

    def __init__(self, ledger: Ledger, forecast: Forecast) -> None:
        self.ledger, self.forecast = ledger, forecast
        self.in_flight = 0
        self._lock = threading.Lock()

    def charge(self, key: str, body: bytes) -> Answer:
        """Deal with one request; every request is noted, whatever comes of it."""
        self._count(+1)
        try:
            fault = self.forecast.next() if key else CALM
            answer = self._answer(key, body, fault)
            self.ledger.note(key, fault.kind, answer.status, repeat=answer.repeat)
            return answer
        finally:
            self._count(-1)

    def _count(self, step: int) -> None:
        with self._lock:
            self.in_flight += step

    def _answer(self, key: str, body: bytes, fault: Fault) -> Answer:
        match fault.kind:
            case Kind.THROTTLE:
                wait = {"Retry-After": f"{fault.seconds:.0f}"}
                return Answer(status=429, body={"error": "too many requests"}, headers=wait)
            case Kind.FAIL:
                return Answer(status=500, body={"error": "our fault"})
            case Kind.REFUSE:
                return Answer(status=402, body={"error": "declined"})
            case Kind.SLOW:
                # Applied before the wait: whoever dies meanwhile leaves a charge behind.
                answer = self._apply(key, body)
                time.sleep(fault.seconds)
                return answer
            case Kind.LOST:
                answer = self._apply(key, body)
                time.sleep(fault.seconds)
                return dataclasses.replace(answer, status=0)
            case Kind.NONE:
                return self._apply(key, body)

    def _apply(self, key: str, body: bytes) -> Answer:
        try:
            order_id, amount = _asked(body)
            charge, now = self.ledger.apply(key, order_id=order_id, amount_cents=amount)
        except (ValueError, KeyError, TypeError):
            return Answer(status=400, body={"error": "order and amount_cents, as JSON numbers"})
        except OtherBodyError:
            return Answer(status=422, body={"error": "this key was used for another charge"})
        receipt = {"id": charge.reference, "amount_cents": charge.amount_cents}
        headers = {} if now else {"Idempotent-Replayed": "true"}
        return Answer(status=201, body=receipt, headers=headers, repeat=not now)


def _asked(body: bytes) -> tuple[int, int]:
    said = json.loads(body)
    return int(said["order"]), int(said["amount_cents"])
