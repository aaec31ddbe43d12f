"""Timing a slice of calls."""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path

Call = Callable[[], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """What a slice cost; all times in seconds, `latencies` one a call."""

    wall: float
    cpu: float
    latencies: Sequence[float]

    @property
    def calls(self) -> int:
        """How many calls were made."""
        return len(self.latencies)

    def metrics(self, rate: str) -> dict[str, float]:
        """Return the calls per second under the name `rate`, latencies and CPU in ms a call."""
        return {
            rate: self.calls / self.wall,
            "p50_ms": percentile(self.latencies, 0.5) * 1e3,
            "p95_ms": percentile(self.latencies, 0.95) * 1e3,
            "client_cpu_ms": self.cpu / self.calls * 1e3,
        }


def percentile(values: Iterable[float], fraction: float) -> float:
    """Return the value below which `fraction` of the values lie."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(fraction * len(ordered)))]


def timed(calls: Iterable[Call], seconds: float) -> Timed:
    """Make one call after the other for `seconds`, or until there are no more."""
    latencies: list[float] = []
    cpu = time.process_time()
    start = now = time.perf_counter()
    for call in calls:
        call()
        after = time.perf_counter()
        latencies.append(after - now)
        now = after
        if now - start >= seconds:
            break
    return Timed(wall=now - start, cpu=time.process_time() - cpu, latencies=latencies)


def timed_loop(call: Call, seconds: float) -> Timed:
    """Call again and again for `seconds`."""
    return timed(repeat(call), seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What one call cost, in ms: by the clock, and of processor on both sides."""

    clock: float
    busy: float


def spent(call: Callable[[], object]) -> Spent:
    """Make the call; `busy` is this process' time and that of its PostgreSQL session."""
    began, busy = time.perf_counter(), _busy()
    call()
    return Spent(clock=(time.perf_counter() - began) * 1e3, busy=_busy() - busy)


def _busy() -> float:
    from django.db import connection

    connection.ensure_connection()
    session = Path(f"/proc/{connection.connection.info.backend_pid}/schedstat")
    # A server on another machine has no file here: then only this side is counted.
    theirs = int(session.read_text().split()[0]) / 1e6 if session.exists() else 0.0
    return time.process_time() * 1e3 + theirs
