"""Ctrl-C and a termination: both end the demo, whatever it is doing.

An exception that a signal raises can come where Python drops it (a destructor, a callback of a weak
reference). So the signal is remembered too, and looked for at every step.
"""

import signal
from types import FrameType

_asked: list[int] = []


def listen() -> None:
    """From now on SIGINT and SIGTERM raise KeyboardInterrupt, and :func:`check` does afterwards."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _hear)


def _hear(number: int, frame: FrameType | None) -> None:
    _asked.append(number)
    raise KeyboardInterrupt


def check() -> None:
    """Raise KeyboardInterrupt if the demo was asked to end and still goes on."""
    if _asked:
        raise KeyboardInterrupt
