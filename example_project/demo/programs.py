"""Starting programs, watching them, and leaving none behind."""

import contextlib
import dataclasses
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

from demo.interrupt import check
from servers.processes import signal_family, tethered

TAIL = 12


class SetUpError(Exception):
    """The stage could not be set; the message is the one sentence to show."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """One started program, with its output in a file."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    def alive(self) -> bool:
        """Whether the program itself (not its children) still runs."""
        return self.process.poll() is None

    def said(self, words: str) -> bool:
        """Whether ``words`` stand in its output so far."""
        return words in self.log.read_text(errors="replace")

    def kill(self) -> None:
        """``kill -9`` for the program and all its children at once."""
        if self.alive():
            signal_family(self.process.pid, signal.SIGKILL)
        # Its group too: a child may have outlived a parent that ended by itself.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def ask_to_stop(self) -> None:
        """SIGTERM for the program alone; it sees to its children."""
        with contextlib.suppress(ProcessLookupError):
            self.process.terminate()

    def tail(self) -> str:
        """The last lines of its output."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-TAIL:])


class Programs:
    """All programs of one demo; a context manager that ends them.

    Used from one thread only, the one that lives longest: the kernel ends a program when the
    thread that started it is gone.
    """

    def __init__(self, logs: Path, env: Mapping[str, str]) -> None:
        self._logs, self._env = logs, {**os.environ, **env}
        self._started: list[Program] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, name: str, argv: Sequence[str], **env: str) -> Program:
        """Start ``argv`` under ``name``; the same name again appends to the same log."""
        check()
        log = self._logs / f"{name}.log"
        with log.open("ab") as out:
            process = subprocess.Popen(
                tethered(argv, None),
                # A clean folder: Python looks for modules where it is started, too.
                cwd=self._logs,
                env={**self._env, **env},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        program = Program(name=name, process=process, log=log)
        self._started.append(program)
        return program

    def run(self, name: str, argv: Sequence[str], **env: str) -> None:
        """Run ``argv`` to its end.

        :raises SetUpError: where it fails, with its last lines.
        """
        program = self.start(name, argv, **env)
        if code := program.process.wait():
            raise SetUpError(f"{name} failed with exit code {code}:\n{program.tail()}")

    def stop(self, grace: float = 5.0) -> None:
        """End everything: ask all at once, then kill whoever is left after ``grace`` seconds."""
        deadline = time.monotonic() + grace
        for program in self._started:
            program.ask_to_stop()
        for program in self._started:
            with contextlib.suppress(subprocess.TimeoutExpired):
                program.process.wait(max(0.0, deadline - time.monotonic()))
            program.kill()
        self._started.clear()


def until(what: str, ready: Callable[[], bool], *watched: Program, timeout: float = 60.0) -> None:
    """Wait until ``ready()``, as long as every watched program lives.

    :raises SetUpError: when a program died or ``timeout`` seconds are over.
    """
    deadline = time.monotonic() + timeout
    while not ready():
        check()
        for program in watched:
            if not program.alive():
                raise SetUpError(f"{program.name} ended while {what}:\n{program.tail()}")
        if time.monotonic() > deadline:
            tails = "".join(f"\n{program.name}: {program.tail()}" for program in watched)
            raise SetUpError(f"gave up after {timeout:.0f} s: {what}{tails}")
        time.sleep(0.02)
