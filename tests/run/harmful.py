"""A guarded task that does to its process what no task should."""

import ctypes
import os
import resource
from pathlib import Path

from celery_guard import guarded_task
from tests.project.shop.models import Mark
from tests.project.shop.witness import leave_trace

MEMORY = 256 * 2**20


@guarded_task(key="harms:{name}", time_limit=1)
def harms(name: str, how: str) -> None:
    """Writes, then does harm in the way it is told to."""
    leave_trace(name)
    Mark.objects.create(name=name)
    match how:
        case "exits at once":
            os._exit(3)
        case "hangs in C":
            # With the interpreter's lock: no other thread of the process runs any more.
            ctypes.PyDLL(None).sleep(3600)
        case "takes all memory":
            _take_all_memory()
        case "raises what can't be pickled":
            raise _Unpicklable
        case "forks":
            _fork()


def _take_all_memory() -> None:
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, before[1]))
    try:
        bytearray(2 * MEMORY)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


class _Unpicklable(Exception):
    def __init__(self) -> None:
        super().__init__(lambda: None)


def _fork() -> None:
    if (child := os.fork()) == 0:
        os._exit(0)
    os.waitpid(child, 0)
