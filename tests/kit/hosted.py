"""The relay that a forked worker hosts is a fork too: laid by before the worker has imported anything.

The package starts a new interpreter for it, which takes more processor time than the worker's own start.
What stands in for that is the worker's child as well, gets the same command line, environment, import path
and open file, and leads a session of its own. It is used for the first relay of a worker; what takes a dead
one's place is a new interpreter. `GUARD_TEST_RELAY=new` makes the first one that too.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

COMMAND = ["-m", "django", "guard_relay"]
LARGEST = 1 << 17


def hosts(words: Sequence[str], environ: Mapping[str, str]) -> bool:
    """Whether such a process is a worker that will start a relay."""
    if environ.get("GUARD_TEST_HOST_RELAY") == "0" or environ.get("GUARD_TEST_RELAY") == "new":
        return False
    return words[0] == "celery" and "worker" in words


def lay_by() -> str:
    """Fork. In the child, once it is asked for, the name of the module to run; empty in the worker."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = os.fork()
    if pid == 0:
        ours.close()
        return _begin(theirs)
    theirs.close()
    _Popen.waiting = pid, ours
    subprocess.Popen = _Popen  # type: ignore[assignment,misc]
    return ""


def _begin(asked: socket.socket) -> str:
    with asked:
        message, descriptors, _, _ = socket.recv_fds(asked, LARGEST, 1)
    if not message:
        # The worker has ended, or has started none.
        os._exit(0)
    (received,) = descriptors
    request = json.loads(message)
    if received != request["descriptor"]:
        os.dup2(received, request["descriptor"])
        os.close(received)
    os.setsid()
    os.environ.clear()
    os.environ.update(request["environ"])
    given = os.environ["PYTHONPATH"].split(os.pathsep)
    sys.path[:] = ["", *given, *(path for path in sys.path if path not in {"", *given})]
    module, *sys.argv[1:] = request["words"]
    return str(module)


class _Begun:
    """As much of `subprocess.Popen` as hosting needs, for a child that was there before."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        deadline = time.monotonic() + (timeout or 60.0)
        while (code := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(COMMAND, timeout or 60.0)
            time.sleep(0.01)
        return code

    def terminate(self) -> None:
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        self._send(signal.SIGKILL)

    def _send(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)


class _Popen(subprocess.Popen[Any]):
    """A new process, but for the first relay."""

    waiting: tuple[int, socket.socket] | None = None

    def __new__(cls, args: Sequence[str], *more: Any, **options: Any) -> Any:
        if cls.waiting is None or list(args[1:4]) != COMMAND:
            return super().__new__(cls)
        (pid, theirs), cls.waiting = cls.waiting, None
        (descriptor,) = options["pass_fds"]
        environ = dict(options["env"])
        request = {"words": args[2:], "environ": environ, "descriptor": descriptor}
        with theirs:
            socket.send_fds(theirs, [json.dumps(request).encode()], [descriptor])
        return _Begun(pid)
