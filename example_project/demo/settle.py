"""Waiting until nothing more can happen."""

import time
from collections.abc import Callable

from demo.witness import Witness

QUIET = 1.0


def settle(seeing: Witness, owed: int, tell: Callable[[int], None], timeout: float) -> bool:
    """Wait until every job has ended and the broker is empty, and stays so for a second.

    The second is for latecomers: a duplicate that is still on its way must get the time to show.

    :param owed: effects that the accepted orders ask for.
    :param tell: called with the number of effects seen so far.
    :returns: whether all was quiet within ``timeout`` seconds.
    """
    deadline = time.monotonic() + timeout
    quiet_since = None
    while (now := time.monotonic()) < deadline:
        if not _quiet(seeing, owed, tell):
            quiet_since = None
        elif quiet_since is None:
            quiet_since = now
        elif now - quiet_since > QUIET:
            return True
        time.sleep(0.1)
    return False


def _quiet(seeing: Witness, owed: int, tell: Callable[[int], None]) -> bool:
    tell(min(owed, sum(len(effects) for effects in seeing.seen().values())))
    return not seeing.unfinished() and not seeing.in_broker()
