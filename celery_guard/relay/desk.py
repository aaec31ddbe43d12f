"""What a worker and the relay it hosts tell each other: a few numbers in a file without a name.

The worker says how large its pool is, and whether it wants advice; the relay how large the pool
should be, and until when that counts.
Neither ever waits for the other, or for a database that the other waits for: reading and writing
a few bytes of memory can't hang.
"""

from __future__ import annotations

import os
import struct
import tempfile
import time

_SIZE = struct.Struct("=q")
_ASKS = struct.Struct("=q")
_ADVICE = struct.Struct("=qd")
_ASKS_AT = _SIZE.size
_ADVICE_AT = _ASKS_AT + _ASKS.size


class Desk:
    """The file, open in both processes. Times are of the machine's monotonic clock."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    @classmethod
    def fresh(cls) -> Desk:
        """A new one, for a worker; it is gone when both processes are."""
        if hasattr(os, "memfd_create"):
            fd = os.memfd_create("celery-guard-desk")
        else:
            with tempfile.TemporaryFile() as file:
                fd = os.dup(file.fileno())
        os.pwrite(fd, bytes(_ADVICE_AT + _ADVICE.size), 0)
        return cls(fd)

    def say_size(self, slots: int) -> None:
        """The pool has ``slots`` now. For the worker."""
        os.pwrite(self.fd, _SIZE.pack(slots), 0)

    def size(self) -> int:
        """How large the pool is; 0 while nobody has said. For the relay."""
        return int(_SIZE.unpack(os.pread(self.fd, _SIZE.size, 0))[0])

    def ask(self) -> None:
        """This worker goes by advice. For the worker."""
        os.pwrite(self.fd, _ASKS.pack(1), _ASKS_AT)

    def asks(self) -> bool:
        """Whether advice is wanted. For the relay."""
        return bool(_ASKS.unpack(os.pread(self.fd, _ASKS.size, _ASKS_AT))[0])

    def advise(self, slots: int, seconds: float) -> None:
        """The pool should have ``slots``, which counts for so many seconds. For the relay."""
        os.pwrite(self.fd, _ADVICE.pack(slots, time.monotonic() + seconds), _ADVICE_AT)

    def advised(self) -> int | None:
        """How large the pool should be; None when nothing said counts any more. For the worker."""
        slots, until = _ADVICE.unpack(os.pread(self.fd, _ADVICE.size, _ADVICE_AT))
        return int(slots) if time.monotonic() < until else None
