"""When to look at a lane again, and how many jobs to take from it at once."""

from __future__ import annotations

import math

SOON = 0.005
"""Seconds before the second look at a lane that holds back due jobs (its window is full)."""
FIRST_BATCH = 50
BYTES_AHEAD = 4 << 20
"""Most bytes of bodies that one batch should hold, so that large payloads don't fill memory."""


class Pace:
    """The rhythm of one lane, on :func:`time.monotonic`'s clock.

    ``ask_at`` is when somebody should ask when the next job is due: at once after a look that
    found nothing, in a moment after one that found little.
    """

    def __init__(self, batch: int, poll: float) -> None:
        self.look_at = 0.0
        self.ask_at = math.inf
        self.batch = min(batch, FIRST_BATCH)
        self._most = batch
        self._poll = poll
        self._pause = SOON
        self._empty = False

    @property
    def next_at(self) -> float:
        """When there is something to do: to look, or to ask."""
        return min(self.look_at, self.ask_at)

    def now(self) -> None:
        """Something may be due: look at once."""
        self.look_at = 0.0

    def took(self, count: int, size: int, now: float) -> None:
        """A look found ``count`` jobs with ``size`` bytes of bodies."""
        self._empty = not count
        full = count >= self.batch
        self._fit(count, size, full)
        if full:
            self.look_at, self.ask_at = now, math.inf
        elif count:
            # Either nothing else is due, as most often, or the window is full, and moves as jobs
            # end. To ask which is little; a look is much, just when a worker wants its claim.
            self._pause, self.look_at, self.ask_at = SOON, math.inf, now + SOON
        else:
            self.look_at, self.ask_at = math.inf, now

    def due_in(self, seconds: float | None, now: float) -> None:
        """The first unsent job is due in ``seconds`` (0: it is held back); None: there is none."""
        held_back = self._empty and seconds is not None and seconds <= 0
        self._empty, self.ask_at = False, math.inf
        if held_back:
            self.look_at = min(self.look_at, now + self._pause)
            self._pause = min(self._pause * 2, self._poll)
        elif seconds is not None:
            self.look_at = min(self.look_at, now + max(0.0, seconds))

    def _fit(self, count: int, size: int, full: bool) -> None:
        if size > BYTES_AHEAD:
            self.batch = max(1, count * BYTES_AHEAD // size)
        elif full:
            self.batch = min(self._most, self.batch * 2)
