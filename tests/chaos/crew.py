"""The processes of a run: all of them wanted, any of them killed, each started again."""

import os
import random
import secrets
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

from servers.processes import family
from tests.kit.processes import Process

CHILD = "child"


class Member:
    """One process that is to run, whatever happens to it."""

    def __init__(
        self, role: str, argv: Sequence[str], folder: Path, environ: Mapping[str, str] | None = None
    ) -> None:
        self.role = role
        self.starts = 0
        self._environ = environ or {}
        self._argv = argv
        self._folder = folder
        self._process: Process | None = None
        self._name = f"{role}-{secrets.token_hex(2)}"

    def keep(self) -> bool:
        """Start it if it does not run; whether it had died."""
        if self._process is not None and self._process.alive:
            return False
        died = self._process is not None
        if self._process is not None:
            # What it left behind: pool children whose main process is gone.
            self._process.kill()
        self.starts += 1
        log = self._folder / f"{self._name}-{self.starts}.log"
        argv = [word.replace("NAME", f"{self._name}-{self.starts}") for word in self._argv]
        self._process = Process(argv, log, {**os.environ, **self._environ})
        return died

    def family(self) -> list[int]:
        """It and everybody below it, itself first; nobody when it does not run."""
        return family(self._process.pid) if self._process and self._process.alive else []

    def children(self) -> list[int]:
        """The pool children of a worker."""
        return self.family()[1:]

    def signal(self, number: int) -> None:
        """Send a signal to it and all of its children."""
        if self._process is not None:
            self._process.signal(number, whole=True)

    def kill(self) -> None:
        """SIGKILL to it and all of its children, as when a container is killed."""
        if self._process is not None:
            self._process.kill()

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self._process is not None and self._process.alive


class Crew:
    """Two workers, two relays, beat and the till."""

    def __init__(self, folder: Path, rate: float, clock: Mapping[str, str] | None = None) -> None:
        """``clock`` is the environment that gives the first worker a clock of its own."""
        celery = ["-m", "celery", "-A", "tests.project.celery"]
        worker = [*celery, "worker", "-l", "INFO", "-c", "2", "-n", "NAME@%h"]
        worker += ["--without-gossip", "--without-mingle"]
        relay = ["-m", "tests.project.manage", "guard_relay"]
        beat = [*celery, "beat", "-l", "INFO", "-s", str(folder / "beat"), "--pidfile="]
        self._folder = folder
        self.till = _till(folder, rate)
        self.members = [Member("worker", worker, folder, clock), Member("worker", worker, folder)]
        self.members += [Member("relay", relay, folder) for _ in range(2)]
        self.members += [Member("beat", beat, folder), self.till]

    def keep(self) -> None:
        """Start again whoever died."""
        for member in self.members:
            member.keep()

    def kill_at_random(self, dice: random.Random) -> str | None:
        """Kill somebody now; what it was, or None when there was nobody."""
        roles = [CHILD, CHILD, CHILD, CHILD, "worker", "relay", "relay", "till", "beat"]
        role = dice.choice(roles)
        wanted = "worker" if role == CHILD else role
        candidates = [m for m in self.members if m.role == wanted and m.alive]
        if not candidates:
            return None
        member = dice.choice(candidates)
        if role != CHILD:
            member.kill()
            return role
        children = member.children()
        if not children:
            return None
        try:
            os.kill(dice.choice(children), signal.SIGKILL)
        except ProcessLookupError:
            return None
        return role

    def place_at(self, rate: float) -> None:
        """So many orders a second from now on."""
        self.close_till()
        self.till = _till(self._folder, rate)
        self.members.append(self.till)

    def close_till(self) -> None:
        """No more orders."""
        self.members.remove(self.till)
        self.till.kill()

    def end(self) -> None:
        """Kill all of them."""
        for member in (*self.members, self.till):
            member.kill()


def _till(folder: Path, rate: float) -> Member:
    return Member("till", ["-m", "tests.chaos.till", str(rate)], folder)


def start_provider(folder: Path, port: int, seed: int) -> Process:
    """The provider: it is never killed, since it is what counts."""
    argv = ["-m", "tests.chaos.provider", str(port), str(seed)]
    environ = {**os.environ, "GUARD_FAULT": ""}
    return Process(argv, folder / "provider.log", environ)
