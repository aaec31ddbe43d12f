"""`python -m tests.kit.spawner SOCKET`: has imported what a site imports, and forks into what is asked for.

To import Celery and Django takes most of the processor time of a start, and the tests start hundreds of
processes. This one imports them once. For each request it forks a copy of itself, which takes on the
request's environment, folder and output, in a session of its own, and runs the module as `python -m` does.
Nothing of this project is imported before that, nor what reads the environment while it is imported.
"""

import contextlib
import ctypes
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import sys
from collections.abc import Mapping
from typing import Any

from tests.kit.hosted import hosts, lay_by

TOKEN = "GUARD_TEST_TOKEN"
NOBODY = "0" * 16
"""The token of this process; each fork writes its own over it."""
LARGEST = 1 << 17
"""Bytes of a request: a command line and an environment."""
MODULES = (
    "celery.apps.beat",
    "celery.apps.worker",
    "celery.backends.redis",
    "celery.bin.celery",
    "celery.concurrency.prefork",
    "celery.fixups.django",
    "celery.worker.autoscale",
    "celery.worker.components",
    "celery.worker.consumer",
    "celery.worker.strategy",
    "django.contrib.admin.widgets",
    "django.core.management",
    "django.db.models",
    "django.template.defaulttags",
    "django.test.client",
    "django.views.generic",
    "kombu.transport.pyamqp",
    "kombu.transport.redis",
    "psycopg",
    "pymysql",
)
_PR_SET_PDEATHSIG = 1


def serve(connection: socket.socket) -> str:
    """In a fork the name of the module to run; empty in this process, when nobody asks any more."""
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    ends: dict[int, int] = {}
    while True:
        readable, _, _ = select.select([connection.fileno(), woken], [], [])
        if woken in readable:
            os.read(woken, LARGEST)
            _tell_of_ended(ends)
        if connection.fileno() in readable:
            message, descriptors, _, _ = socket.recv_fds(connection, LARGEST, 2)
            if not message:
                return ""
            output, end = descriptors
            spawner, pid = os.getpid(), os.fork()
            if pid == 0:
                return _become(json.loads(message), output, spawner, connection)
            os.close(output)
            ends[pid] = end


def _tell_of_ended(ends: dict[int, int]) -> None:
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            pid, status = ended
            # Whoever asked may be gone.
            with contextlib.suppress(BrokenPipeError):
                os.write(ends[pid], str(os.waitstatus_to_exitcode(status)).encode())
            os.close(ends.pop(pid))


def _become(
    request: Mapping[str, Any], output: int, spawner: int, connection: socket.socket
) -> str:
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    libc = ctypes.CDLL(None)
    if sys.platform == "linux":
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != spawner:
            sys.exit(1)
    _mark(libc, request["environ"][TOKEN])
    # Only now can it be found and killed with all that it starts.
    connection.send(str(os.getpid()).encode())
    connection.detach()
    os.environ.clear()
    os.environ.update(request["environ"])
    os.chdir(request["folder"])
    nothing = os.open(os.devnull, os.O_RDONLY)
    for descriptor, place in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(descriptor, place)
    # The socket, and the ends that belong to others.
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    if hosts(request["words"], os.environ) and (module := lay_by()):
        return module
    module, *sys.argv[1:] = request["words"]
    return str(module)


def _mark(libc: ctypes.CDLL, token: str) -> None:
    # In place, since that is what /proc shows of a process that was not started anew.
    libc.getenv.restype = ctypes.c_void_p
    ctypes.memmove(libc.getenv(TOKEN.encode()), token.encode(), len(NOBODY))


def main() -> None:
    """Import, wait, and be what is asked for."""
    for module in MODULES:
        # A driver may be missing where its database is.
        with contextlib.suppress(ImportError):
            importlib.import_module(module)
    # What is there now stays where it is in every fork.
    gc.collect()
    gc.freeze()
    with socket.socket(fileno=int(sys.argv[1])) as connection:
        module = serve(connection)
    if module:
        # Nothing of this file is left on the stack but this call.
        runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
