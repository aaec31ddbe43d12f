"""The fixtures of all tests. Servers, databases and processes are real; nothing is faked."""

from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from tests.kit import ground, site
from tests.kit.brokers import _empty_redis, broker, own_redis, own_server, redis_client
from tests.kit.processes import Process, Processes, processes, show_logs
from tests.kit.teardown import django_db_setup

__all__ = [
    "_empty_redis",
    "broker",
    "django_db_setup",
    "own_redis",
    "own_server",
    "processes",
    "redis_client",
]


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Bring servers up before anything reads Django's settings."""
    ground.configure(config)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """In CI a server that could not be had fails the run, after everything else has run."""
    if ground.summary(session.config) and ground.must_be_whole():
        session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, None, None]:
    """Note how the site is, before any fixture touches it."""
    site.remember(item)
    yield


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, None, None]:
    """Fail a test that leaves the site changed for those after it."""
    yield
    site.compare(item)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show what the processes of a failed test said, as far as it can be said at all."""
    report = yield
    show_logs(item, report)
    # Halves of surrogates are logged by those who were given some, and no report can carry them.
    report.sections = [
        (title, text.encode(errors="backslashreplace").decode()) for title, text in report.sections
    ]
    return report


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Both databases of the site are open to every test that uses one."""
    site.open_both_databases(items)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Say in one line what did not run here."""
    if line := ground.summary(config):
        terminalreporter.write_line(line)


@pytest.fixture
def worker(processes: Processes) -> Callable[..., Process]:
    """`worker(queues=None, pool="prefork", concurrency=2, env=None)`: a real worker, ready."""
    return processes.worker


@pytest.fixture
def relay(processes: Processes) -> Callable[..., Process]:
    """`relay(*options, env=None)`: a real `guard_relay`, ready."""
    return processes.relay


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which tasks leave their traces (tests.project.shop.witness)."""
    monkeypatch.setenv("GUARD_TEST_SCRATCH", str(tmp_path))
    return tmp_path


@pytest.fixture
def switches_read(monkeypatch: pytest.MonkeyPatch) -> Generator[None, None, None]:
    """Switches and modes were just read, and last for the whole test: for tests that count queries."""
    from celery_guard.enqueue.rollout import reading as modes
    from celery_guard.enqueue.steering import known, reading

    monkeypatch.setattr(known, "KEEPS", 3600.0)
    reading.forget()
    modes.forget()
    reading.switches("default")
    modes.stages("default")
    yield
    reading.forget()
    modes.forget()
