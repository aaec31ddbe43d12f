"""The child processes of a measurement: started, watched, ended."""

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psutil

from servers.processes import tethered


class Process:
    """A command in a session of its own, its output kept for the case that it fails."""

    def __init__(self, command: Sequence[str]) -> None:
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed by stop()
        self._popen = subprocess.Popen(
            tethered(command, None),
            stdout=self._log,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._command = command

    def check(self) -> None:
        """Raise `RuntimeError` with the end of its output if it has ended."""
        if self._popen.poll() is not None:
            raise RuntimeError(
                f"{' '.join(self._command)} ended with {self._popen.returncode}:\n{self.output()}"
            )

    def output(self) -> str:
        """Return the end of what it wrote."""
        self._log.seek(0)
        return self._log.read()[-3000:]

    def cpu_seconds(self) -> float:
        """Return the CPU time of the process and its living children."""
        total = 0.0
        for process in self._tree():
            with contextlib.suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                total += times.user + times.system
        return total

    def peak_rss_mib(self) -> float:
        """Return the largest peak of resident memory in the tree, in MiB."""
        return max((_peak_kib(process.pid) for process in self._tree()), default=0) / 1024

    def stop(self) -> None:
        """End it and everything it started: TERM, then KILL after 5 s."""
        self._signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._popen.wait(timeout=5)
        # Pool children share the group and may outlive their parent.
        self._signal(signal.SIGKILL)
        self._popen.wait()
        self._log.close()

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._popen.pid, number)

    def _tree(self) -> list[psutil.Process]:
        with contextlib.suppress(psutil.NoSuchProcess):
            root = psutil.Process(self._popen.pid)
            return [root, *root.children(recursive=True)]
        return []


def _peak_kib(pid: int) -> int:
    with contextlib.suppress(OSError):  # it ended while we looked
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1])
    return 0


@contextlib.contextmanager
def running(*commands: Sequence[str]) -> Iterator[tuple[Process, ...]]:
    """Run the commands side by side for the length of the block."""
    with contextlib.ExitStack() as stack:
        processes = []
        for command in commands:
            processes.append(Process(command))
            stack.callback(processes[-1].stop)
        yield tuple(processes)


def wait_until(
    condition: Callable[[], object],
    seconds: float,
    every: float,
    *processes: Process,
    required: bool = True,
) -> float:
    """Poll until the condition holds and return the seconds it took.

    Raises `TimeoutError` after `seconds` if `required`, and `RuntimeError` if one of the
    processes has ended.
    """
    begun = time.monotonic()
    while not condition():
        for process in processes:
            process.check()
        if time.monotonic() - begun > seconds:
            if required:
                raise TimeoutError(_late(seconds, processes))
            break
        time.sleep(every)
    return time.monotonic() - begun


def _late(seconds: float, processes: Sequence[Process]) -> str:
    return f"not within {seconds:g} s:\n" + "\n".join(one.output() for one in processes)
