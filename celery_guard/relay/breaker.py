"""How long to leave a destination alone that does not answer."""

from __future__ import annotations

import random

FIRST_PAUSE = 0.1
LONGEST_PAUSE = 5.0


class Breaker:
    """Counts failures in a row, over batches and probes; each one lengthens the next pause."""

    def __init__(self, first: float = FIRST_PAUSE, longest: float = LONGEST_PAUSE) -> None:
        self.first = first
        self.longest = longest
        self.failures = 0

    def failed(self) -> float:
        """Count a failure and return the pause before the next try, in seconds.

        It doubles up to the longest pause and is jittered down to its half, so that many
        relays don't return to a recovering broker at one moment.
        """
        self.failures += 1
        return jittered(self.failures - 1, self.first, self.longest)

    def worked(self) -> None:
        """Forget all failures."""
        self.failures = 0


def jittered(doublings: int, first: float, longest: float) -> float:
    """A pause of at most ``first`` · 2 ** ``doublings`` seconds, capped, at least half of it."""
    # Bounded before the power is taken: 2 ** 1000 is no number of seconds.
    pause = min(longest, first * 2 ** min(doublings, 30))
    return random.uniform(pause / 2, pause)
