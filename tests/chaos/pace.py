"""What long runs share: everybody is kept running while the run waits, and says where it is."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

from tests.chaos.crew import Crew
from tests.chaos.verdict import open_jobs

TICK = 0.05


class Pace:
    """A run's time goes by here; ``what`` is printed every five seconds."""

    def __init__(self, crew: Crew) -> None:
        self.crew = crew
        self.what = "warming up"
        self._said_at = 0.0
        self._began = time.monotonic()

    def hold(self, seconds: float) -> None:
        """Keep everybody running for so long."""
        self.wait(seconds, lambda: False)

    def wait(self, seconds: float, done: Callable[[], bool]) -> bool:
        """Keep everybody running until it is done, or for so long; whether it was done."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.tick()
            with patience():
                if done():
                    return True
        return False

    def tick(self) -> None:
        """Start again whoever died, and let a moment pass."""
        self.crew.keep()
        time.sleep(TICK)
        with patience():
            self._tell()

    def _tell(self) -> None:
        if time.monotonic() - self._said_at > 5:
            self._said_at = time.monotonic()
            spent = time.monotonic() - self._began
            told = f"{self.what}, {open_jobs()} open jobs"
            print(f"[{spent:5.0f} s] {told}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def patience() -> Iterator[None]:
    """The runner's own connection may be cut like everybody's."""
    from django.db import InterfaceError, OperationalError

    try:
        yield
    except (OperationalError, InterfaceError):
        hang_up()


def hang_up() -> None:
    """Close this process' connections: the next question opens anew."""
    from django.db import connections

    connections.close_all()
