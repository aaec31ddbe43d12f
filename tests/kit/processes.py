"""Real Celery workers and relays as processes that tests may kill."""

import contextlib
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

import pytest
from django.db import connections

from servers.processes import signal_family, tethered
from tests.kit import forked
from tests.kit.ground import ROOT
from tests.kit.spawner import TOKEN
from tests.kit.wait import wait_for

LOG_SHOWN = 20_000


class Process:
    """A process of ours with everything below it; its output is kept in a file."""

    def __init__(
        self, argv: Sequence[str], log: Path, env: Mapping[str, str], *, root: Path = ROOT
    ) -> None:
        self.name = log.stem
        self._log = log
        self._token = secrets.token_hex(8)
        environ = {**env, TOKEN: self._token}
        with log.open("wb") as output:
            self._popen: subprocess.Popen[bytes] | forked.Forked
            if root == ROOT and forked.can_be_forked(argv, environ):
                self._popen = forked.start(argv, environ, output.fileno())
                return
            self._popen = subprocess.Popen(
                tethered([sys.executable, *argv], account=None),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=root,
                env=environ,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """The main process."""
        return self._popen.pid

    @property
    def log(self) -> str:
        """All that was printed so far."""
        return self._log.read_text(errors="replace")

    @property
    def alive(self) -> bool:
        """Whether the main process runs."""
        return self._popen.poll() is None

    def members(self) -> list[int]:
        """Every living process that was started below this one, orphans too."""
        mark = f"{TOKEN}={self._token}".encode()
        found = []
        for environ in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):
                if mark in environ.read_bytes():
                    found.append(int(environ.parent.name))
        return found

    def signal(self, number: int, *, whole: bool = False) -> None:
        """Send a signal to the main process, or to all of the family."""
        if whole:
            signal_family(self.pid, number)
        else:
            self._popen.send_signal(number)

    def kill(self, *, whole: bool = True) -> None:
        """SIGKILL, as by the kernel when memory is short; `whole=False` leaves the children."""
        if not whole:
            self._popen.send_signal(signal.SIGKILL)
        while whole and (members := self.members()):
            for member in members:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(member, signal.SIGKILL)
            self._popen.wait()
        self._popen.wait()

    def stop(self, *, timeout: float = 20.0) -> int:
        """SIGTERM, then wait; the exit code. subprocess.TimeoutExpired when it does not end."""
        self._popen.send_signal(signal.SIGTERM)
        return self.wait(timeout=timeout)

    def wait(self, *, timeout: float = 30.0) -> int:
        """The exit code. subprocess.TimeoutExpired when it does not end by itself."""
        return self._popen.wait(timeout)

    def wait_until_ready(self, ready_file: Path) -> None:
        """Return when the process has said so in the file; AssertionError with its log otherwise."""
        try:
            wait_for(lambda: ready_file.exists() or not self.alive, timeout=40, what=self.name)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.log}") from None
        if not ready_file.exists():
            raise AssertionError(f"{self.name} ended before it was ready:\n{self.log}")


class Processes:
    """The processes of one test, all of them killed at its end; they run the tree at ``root``."""

    def __init__(self, folder: Path, root: Path = ROOT) -> None:
        self.folder = folder
        self.root = root
        self.started: list[Process] = []

    def worker(
        self,
        queues: Sequence[str] | None = None,
        pool: str = "prefork",
        concurrency: int = 2,
        env: Mapping[str, str] | None = None,
        options: Sequence[str] = (),
    ) -> Process:
        """A Celery worker of the test site, returned when it consumes; `queues=None` is all."""
        name = f"worker-{len(self.started)}"
        argv = ["-m", "celery", "-A", "tests.project.celery", "worker", "-l", "INFO"]
        argv += ["--without-gossip", "--without-mingle", "-n", f"{name}-{secrets.token_hex(3)}@%h"]
        argv += ["-P", pool, "-c", str(concurrency), *options]
        argv += ["-Q", ",".join(queues)] if queues else []
        return self._start(name, argv, env)

    def relay(self, *options: str, env: Mapping[str, str] | None = None) -> Process:
        """A `guard_relay` of the test site, returned when its loop turns; after `--once` has ended."""
        argv = ["-m", "tests.project.manage", "guard_relay", *options]
        if "--once" in options:
            process = self.python(*argv, env=env)
            process.wait()
            return process
        name = f"relay-{len(self.started)}"
        return self._start(name, [*argv, "--liveness-file", str(self._ready(name))], env)

    def python(self, *argv: str, env: Mapping[str, str] | None = None) -> Process:
        """Any other Python process with the test site's environment; not awaited."""
        name = f"python-{len(self.started)}"
        process = self._process(argv, name, environment(env, root=self.root))
        self.started.append(process)
        return process

    def _start(self, name: str, argv: Sequence[str], env: Mapping[str, str] | None) -> Process:
        ready = self._ready(name)
        variables = {**environment(env, root=self.root), "GUARD_TEST_READY_FILE": str(ready)}
        process = self._process(argv, name, variables)
        self.started.append(process)
        process.wait_until_ready(ready)
        return process

    def _process(self, argv: Sequence[str], name: str, env: Mapping[str, str]) -> Process:
        return Process(argv, self.folder / f"{name}.log", env, root=self.root)

    def _ready(self, name: str) -> Path:
        return self.folder / f"{name}.ready"

    def end(self) -> None:
        """Kill all of them with all their children."""
        for process in self.started:
            process.kill()


_of_test = pytest.StashKey[Processes]()


def environment(extra: Mapping[str, str] | None = None, *, root: Path = ROOT) -> dict[str, str]:
    """The environment of a process that works on this test's databases with the tree at ``root``."""
    urls = {
        "MARIADB_URL" if vendor() == "mysql" else "DATABASE_URL": database_url("default"),
        "GUARD_TEST_OTHER_URL": database_url("other"),
    }
    paths = os.pathsep.join(map(str, (root, root / "scripts", root / "example_project")))
    return {**os.environ, **urls, "PYTHONPATH": paths, **(extra or {})}


def vendor() -> str:
    """The kind of database of this run, as Django calls it."""
    return connections["default"].vendor


def database_url(alias: str) -> str:
    """The URL of a test database as it is named right now."""
    settings = connections[alias].settings_dict
    scheme = "mysql" if connections[alias].vendor == "mysql" else "postgresql"
    password = f":{quote(settings['PASSWORD'])}" if settings["PASSWORD"] else ""
    account = f"{quote(settings['USER'])}{password}"
    return f"{scheme}://{account}@{settings['HOST']}:{settings['PORT']}/{settings['NAME']}"


@pytest.fixture
def processes(
    transactional_db: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> Iterator[Processes]:
    """Starts real processes on the test's databases; their logs are shown when the test fails."""
    monkeypatch.setenv("GUARD_TEST_SCRATCH", str(tmp_path))
    started = request.node.stash[_of_test] = Processes(tmp_path)
    try:
        yield started
    finally:
        started.end()


def show_logs(item: pytest.Item, report: pytest.TestReport) -> None:
    """Add the end of every process' output to the report of a test that failed."""
    if report.failed and (started := item.stash.get(_of_test, None)):
        for process in started.started:
            report.sections.append((f"{process.name}.log", process.log[-LOG_SHOWN:]))
