"""Starts processes as forks of one that has done the imports (`tests.kit.spawner`)."""

import atexit
import json
import os
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import cache

from servers.processes import tethered
from tests.kit.ground import ROOT
from tests.kit.spawner import NOBODY, TOKEN

PATHS = os.pathsep.join(map(str, (ROOT, ROOT / "scripts", ROOT / "example_project")))
READ_AT_IMPORT = ("LD_PRELOAD", "PROMETHEUS_MULTIPROC_DIR")
"""Variables that change what is loaded, or how."""


class Forked:
    """As much of `subprocess.Popen` as `Process` needs, for a process whose parent is the spawner."""

    def __init__(self, pid: int, end: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._end = end

    def poll(self) -> int | None:
        """The exit code, or None while it runs."""
        return self._look(0)

    def wait(self, timeout: float | None = None) -> int:
        """The exit code; subprocess.TimeoutExpired when it does not end."""
        code = self._look(timeout)
        if code is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(str(self.pid), timeout)
        return code

    def send_signal(self, number: int) -> None:
        """Nothing happens when it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def _look(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._end], [], [], timeout)[0]:
            told = os.read(self._end, 16)
            os.close(self._end)
            if not told:
                raise RuntimeError("the spawner died, and all that it started with it")
            self.returncode = int(told)
        return self.returncode


class _Spawner:
    """The process that forks, started when the first one is asked for; it ends with this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            words = [sys.executable, "-m", "tests.kit.spawner", str(theirs.fileno())]
            self._popen = subprocess.Popen(
                tethered(words, account=None),
                stdin=subprocess.DEVNULL,
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": PATHS, TOKEN: NOBODY},
                start_new_session=True,
                pass_fds=[theirs.fileno()],
            )
        atexit.register(self._end)

    def _end(self) -> None:
        self._ours.close()
        self._popen.wait()

    def start(self, request: bytes, output: int) -> Forked:
        with self._lock:
            ours, theirs = os.pipe()
            socket.send_fds(self._ours, [request], [output, theirs])
            os.close(theirs)
            return Forked(int(self._ours.recv(32)), ours)


_spawner = cache(_Spawner)


def can_be_forked(argv: Sequence[str], env: Mapping[str, str]) -> bool:
    """Whether a fork would be what a new interpreter is, in all that such a process can tell.

    Not with other paths to import from, nor with what an interpreter takes at its start.
    """
    return (
        sys.platform == "linux"
        and argv[0] == "-m"
        and env.get("PYTHONPATH") == PATHS
        and not any(name in env for name in READ_AT_IMPORT)
        # A process dies with the thread that has started it.
        and threading.current_thread() is threading.main_thread()
    )


def start(argv: Sequence[str], env: Mapping[str, str], output: int) -> Forked:
    """Run `python -m ...` at the project's root, with its output in the open file `output`."""
    request = {"words": argv[1:], "environ": dict(env), "folder": str(ROOT)}
    return _spawner().start(json.dumps(request).encode(), output)
