"""Who comes to the shop: a crowd that never comes back, and probes that come back when told."""

import contextlib
import dataclasses
import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from http.client import HTTPConnection

TRIES = 3


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a visitor was told: ``after`` is the answer's Retry-After, ``took`` its seconds."""

    lane: str
    status: int
    after: int | None
    took: float


class Visitors:
    """Comes at random moments, so often a second to each lane, whatever the shop says."""

    def __init__(self, port: int, rates: dict[str, float], seed: int = 1) -> None:
        self.answers: list[Answer] = []
        self.probes: dict[str, list[list[Answer]]] = {lane: [] for lane in rates}
        self.left_at = datetime.now(UTC)
        self._port, self._rates = port, rates
        self._chance = random.Random(seed)
        self._numbers = iter(range(10**9))

    def come(self, seconds: float, *, probe_every: float) -> None:
        """The crowd for so long, with one probe each ``probe_every`` seconds to each lane."""
        probes: list[threading.Thread] = []
        begun, probed = time.monotonic(), 0
        with ThreadPoolExecutor(24) as crowd:
            for at, lane in self._moments(seconds):
                time.sleep(max(0.0, begun + at - time.monotonic()))
                crowd.submit(self._come_once, lane)
                if at > probed * probe_every:
                    probed += 1
                    probes += [self._send_probe(lane) for lane in self._rates]
        self.left_at = datetime.now(UTC)
        for probe in probes:
            probe.join()

    def all(self) -> list[Answer]:
        """Every answer that anybody was given."""
        told = [answer for lane in self.probes.values() for probe in lane for answer in probe]
        return [*self.answers, *told]

    def _moments(self, seconds: float) -> Iterator[tuple[float, str]]:
        lanes, rates = list(self._rates), list(self._rates.values())
        at = 0.0
        while (at := at + self._chance.expovariate(sum(rates))) < seconds:
            yield at, self._chance.choices(lanes, rates)[0]

    def _come_once(self, lane: str) -> None:
        self.answers.append(self._ask(lane, f"v{next(self._numbers)}"))

    def _send_probe(self, lane: str) -> threading.Thread:
        thread = threading.Thread(target=self._probe, args=(lane, f"p{next(self._numbers)}"))
        thread.start()
        return thread

    def _probe(self, lane: str, name: str) -> None:
        told: list[Answer] = []
        self.probes[lane].append(told)
        while len(told) < TRIES and not any(answer.status == 202 for answer in told):
            if told:
                time.sleep(told[-1].after or 0)
            told.append(self._ask(lane, name))

    def _ask(self, lane: str, name: str) -> Answer:
        begun = time.monotonic()
        with contextlib.closing(HTTPConnection("127.0.0.1", self._port, timeout=60)) as line:
            line.request("POST", f"/{lane}/{name}")
            answer = line.getresponse()
            answer.read()
        after = answer.headers["Retry-After"]
        return Answer(
            lane=lane,
            status=answer.status,
            after=None if after is None else int(after),
            took=time.monotonic() - begun,
        )
