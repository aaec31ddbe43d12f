"""The customers: several at once, over HTTP, asking again under the same key when in doubt."""

import dataclasses
import json
import random
import threading
import time
import uuid
from http.client import HTTPConnection, HTTPException

CUSTOMERS = 4
TRIES = 5


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """An order that the site answered with 202; ``committed_at`` is the site's wall clock."""

    order_id: int
    committed_at: float


class Customers:
    """Places ``total`` orders at ``rate`` a second from several threads.

    Each order has its own Idempotency-Key, so a customer who got no answer asks again and is given
    the same order. What stays without a 202 is in ``refused``.
    """

    def __init__(self, port: int, *, total: int, rate: float, seed: int) -> None:
        self._port, self._rate = port, rate
        dice = random.Random(seed)
        self._wishes = [_wish(dice, number) for number in range(total)]
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._next = 0
        self._began = 0.0
        self.accepted: list[Accepted] = []
        self.refused: list[str] = []
        self._threads = [threading.Thread(target=self._shop, daemon=True) for _ in range(CUSTOMERS)]

    def start(self) -> None:
        """Let them in."""
        self._began = time.monotonic()
        for thread in self._threads:
            thread.start()

    def rush(self, orders: int) -> None:
        """Place the next ``orders`` at once."""
        self._began -= orders / self._rate

    def done(self) -> bool:
        """Whether every order was placed or refused."""
        return not any(thread.is_alive() for thread in self._threads)

    def stop(self) -> None:
        """Send them home early."""
        self._stop.set()

    def _shop(self) -> None:
        line = HTTPConnection("127.0.0.1", self._port, timeout=10)
        while (number := self._take()) is not None:
            due = self._began + number / self._rate
            if self._stop.wait(max(0.0, due - time.monotonic())):
                break
            self._place(line, self._wishes[number])
        line.close()

    def _take(self) -> int | None:
        with self._lock:
            number = self._next
            self._next += 1
        return number if number < len(self._wishes) else None

    def _place(self, line: HTTPConnection, wish: dict[str, object]) -> None:
        key, answer = str(uuid.uuid4()), ""
        for _ in range(TRIES):
            try:
                status, answer = _post(line, key, wish)
            except (OSError, HTTPException) as error:
                # No answer is not a refusal: the order may be in, and the key finds it again.
                line.close()
                answer = f"no answer: {error}"
                continue
            if status == 202:
                self._note(json.loads(answer))
                return
        self.refused.append(answer[:200])

    def _note(self, said: dict[str, object]) -> None:
        order_id, committed_at = int(str(said["order"])), float(str(said["committed_at"]))
        self.accepted.append(Accepted(order_id=order_id, committed_at=committed_at))


def _post(line: HTTPConnection, key: str, wish: dict[str, object]) -> tuple[int, str]:
    headers = {"Content-Type": "application/json", "Idempotency-Key": key}
    line.request("POST", "/orders/", json.dumps(wish), headers)
    answer = line.getresponse()
    return answer.status, answer.read().decode(errors="replace")


def _wish(dice: random.Random, number: int) -> dict[str, object]:
    return {
        "shop": dice.randint(1, 3),
        "product": dice.randint(1, 8),
        "quantity": dice.randint(1, 5),
        "email": f"customer{number}@mail.example",
    }
