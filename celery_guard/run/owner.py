"""Who holds a lease: one identity per life of a process.

It is made from a random number of the process that was started and the process id, so that a
worker's main process can name the owner that a dead child was, and nobody else's can collide.
"""

from __future__ import annotations

import os
import uuid

# Forked children inherit it. A child that was started afresh has its own, and its main process
# can't name it: such a child's jobs come back when their leases are over.
_BOOT = uuid.uuid4()
_mine: tuple[int, uuid.UUID] = (0, _BOOT)


def owner() -> uuid.UUID:
    """The identity of this process."""
    global _mine  # noqa: PLW0603 - one per process is the point
    pid, known = _mine
    if pid == os.getpid():
        return known
    _mine = (os.getpid(), owner_of(os.getpid()))
    return _mine[1]


def owner_of(pid: int | None) -> uuid.UUID:
    """The identity of the forked child ``pid`` of this process; nobody's for None."""
    return uuid.uuid5(_BOOT, str(pid))
