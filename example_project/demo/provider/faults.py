"""The provider's bad days: a list of faults, one used up by each charge request."""

import dataclasses
import enum
import threading
from collections import deque
from collections.abc import Iterable, Mapping


class Kind(enum.StrEnum):
    """What may go wrong with one request."""

    NONE = "none"
    SLOW = "slow"
    """Answers late, but answers."""
    LOST = "lost"
    """Applies the charge and never says so: the caller's time-out strikes first."""
    THROTTLE = "throttle"
    """429 with Retry-After; nothing applied."""
    FAIL = "fail"
    """500; nothing applied."""
    REFUSE = "refuse"
    """402; the charge is declined for good."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One bad moment; ``seconds`` is how slow, how long silent, or when to come back."""

    kind: Kind
    seconds: float = 0.0


CALM = Fault(kind=Kind.NONE)


class Forecast:
    """The faults to come, shared by all request threads."""

    def __init__(self) -> None:
        self._coming: deque[Fault] = deque()
        self._lock = threading.Lock()

    def add(self, faults: Iterable[Mapping[str, object]], *, first: bool = False) -> int:
        """Add ``faults`` (``{"kind": …, "seconds": …}``) and say how many are to come.

        :param first: before those that are there already, not behind them.

        :raises ValueError: for an unknown kind or seconds that are no number.
        """
        new = [
            Fault(kind=Kind(str(f["kind"])), seconds=float(str(f.get("seconds", 0))))
            for f in faults
        ]
        with self._lock:
            if first:
                self._coming.extendleft(reversed(new))
            else:
                self._coming.extend(new)
            return len(self._coming)

    def clear(self) -> None:
        """Good weather from now on."""
        with self._lock:
            self._coming.clear()

    def next(self) -> Fault:
        """The fault for the request at hand."""
        with self._lock:
            return self._coming.popleft() if self._coming else CALM
