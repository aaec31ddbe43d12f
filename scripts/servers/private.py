"""A private copy of a server: started on a free loopback port, stopped with us, tests may hurt it."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from servers.accounts import Account
from servers.errors import ServerUnavailable
from servers.processes import free_port, signal_family, tethered

STARTS = 3
POLL_SECONDS = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How one kind of server is started on a port, known to be ready, and told to stop."""

    name: str
    folder: Path
    argv: Callable[[int], Sequence[str]]
    url: Callable[[int], str]
    ready: Callable[[str], bool]
    account: Account | None = None
    environ: Mapping[str, str] = field(default_factory=dict)
    tools: Path | None = None
    stop_signal: int = signal.SIGTERM
    death_signal: int = signal.SIGKILL
    patience: float = 30.0


class Private:
    """One running copy; the port, the URL and the data folder stay the same over restarts.

    The copy dies with the thread that started it, even when that is killed with -9.
    """

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe
        self._process: subprocess.Popen[bytes] | None = None
        self._has_answered = False
        self.port = free_port()
        self.start()

    @property
    def url(self) -> str:
        """Where a client connects to, with the account's name and password."""
        return self._recipe.url(self.port)

    @property
    def pid(self) -> int:
        """The process id of the server's main process; LookupError while it does not run."""
        if self._process is None:
            raise LookupError(f"the private {self._recipe.name} is not running")
        return self._process.pid

    @property
    def log(self) -> Path:
        """The file that holds everything the server printed."""
        return self._recipe.folder / "server.log"

    def start(self) -> None:
        """Start the server and return when it answers; ServerUnavailable when it does not."""
        for attempt in range(STARTS):
            if attempt and not self._has_answered:
                # Another program may have taken the port between the look and the start.
                self.port = free_port()
            self._process = self._spawn()
            if self._answers():
                self._has_answered = True
                return
            self.kill()
        raise ServerUnavailable(
            f"the private {self._recipe.name} did not start: {self._last_words()}"
        )

    def stop(self) -> None:
        """Ask the server to end, wait for it, and kill what is left after the patience is over."""
        if self._process is None:
            return
        self.thaw()
        self._process.send_signal(self._recipe.stop_signal)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(self._recipe.patience)
        self.kill()

    def kill(self) -> None:
        """End the server and all its children with SIGKILL, as a crash would."""
        if self._process is not None:
            signal_family(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def freeze(self) -> None:
        """Stop the processes in place: connections stay open and nothing is answered."""
        signal_family(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let frozen processes go on."""
        signal_family(self.pid, signal.SIGCONT)

    def tell(self, tool: str, *words: str) -> str:
        """Run one of the server's own tools (`rabbitmqctl`) against it; what it printed.

        LookupError where this kind of server has none, subprocess.CalledProcessError when it fails.
        """
        if self._recipe.tools is None:
            raise LookupError(f"the private {self._recipe.name} has no tools")
        command = [str(self._recipe.tools / tool), *words]
        return subprocess.run(
            command, env=self._environ(), check=True, capture_output=True, text=True
        ).stdout

    def _environ(self) -> dict[str, str]:
        path = os.environ.get("PATH", os.defpath)
        return {"PATH": path, "LC_ALL": "C", **self._recipe.environ}

    def _spawn(self) -> subprocess.Popen[bytes]:
        recipe = self._recipe
        command = tethered(recipe.argv(self.port), recipe.account, recipe.death_signal)
        with self.log.open("ab") as log:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=recipe.folder,
                env=self._environ(),
                start_new_session=True,
            )

    def _answers(self) -> bool:
        assert self._process is not None
        deadline = time.monotonic() + self._recipe.patience
        while self._process.poll() is None and time.monotonic() < deadline:
            if self._recipe.ready(self.url):
                return True
            time.sleep(POLL_SECONDS)
        return False

    def _last_words(self) -> str:
        lines = self.log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"
