"""A guarded task that does to its process what no task should."""

import ctypes
import os
import resource
import sys
from pathlib import Path

from celery_guard import current_job, guarded_task
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


@guarded_task(key="forks:{name}", time_limit=20)
def forks(name: str, how: str) -> int:
    """Writes and forks; its child leaves the body in the way it is told to. Returns its status."""
    Mark.objects.create(name=name)
    return _leaving(how)


@guarded_task(key="forks-in-steps:{name}", atomic=False, time_limit=20)
def forks_in_steps(name: str, how: str) -> int:
    """The same for a body that finishes by itself; the child may try to."""
    status = _leaving(how)
    with current_job().finish(result=status):
        Mark.objects.create(name=name)
    return status


def _leaving(how: str) -> int:
    if child := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    match how:
        case "raises":
            raise ValueError(how)
        case "exits":
            sys.exit(7)
        case "finishes":
            with current_job().finish():
                pass
    return 0


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
