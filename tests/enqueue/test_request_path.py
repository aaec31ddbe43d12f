"""A request needs neither broker nor result backend: whatever ails them, its job is written."""

import contextlib
import os
import select
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import servers
from celery_guard.jobs.models import Job
from tests.enqueue.wire import headers_of, take_all
from tests.kit.brokers import Own
from tests.kit.processes import Processes, environment
from tests.kit.wait import wait_for

pytestmark = [pytest.mark.bar, pytest.mark.django_db(transaction=True)]

DEADLINE = 30.0
"""Generous: what is proved is that nothing is waited for, not how fast it is."""


class WebProcess:
    """A process that takes requests."""

    def __init__(self, env: Mapping[str, str], log: Path, *options: str) -> None:
        self._log = log
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.enqueue.webprocess", *options],
                env={**environment(), **env},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        assert self._line() == "ready"

    def _line(self) -> str:
        assert self._process.stdout is not None
        readable, _, _ = select.select([self._process.stdout], [], [], DEADLINE)
        line = self._process.stdout.readline().strip() if readable else ""
        assert line, f"the web process hangs or died:\n{self._log.read_text()}"
        return line

    def request(self) -> dict[str, Any]:
        """One request; AssertionError when it does not end."""
        import json

        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        told: dict[str, Any] = json.loads(self._line())
        return told

    def end(self) -> None:
        """Kill it."""
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def web(tmp_path: Path) -> Iterator[Any]:
    """`web(broker=url, backend=url, ...)`: a web process with these servers."""
    started: list[WebProcess] = []

    def start(*options: str, broker: str, backend: str = "", **env: str) -> WebProcess:
        env = {"GUARD_TEST_BROKER_URL": broker, "REDIS_URL": backend or os.environ["REDIS_URL"]}
        started.append(WebProcess(env, tmp_path / f"web-{len(started)}.log", *options))
        return started[-1]

    yield start
    for process in started:
        process.end()


@contextlib.contextmanager
def listener() -> Iterator[int]:
    """A port that accepts connections and never says a word."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(100)
        yield silent.getsockname()[1]


def closed_port() -> int:
    """A port on which nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def check(process: WebProcess) -> None:
    """The request ends, its jobs are committed, and no connection was made or used."""
    before = Job.objects.count()
    told = process.request()
    assert told["addresses"] == []
    assert Job.objects.count() == before + told["asked"] + 20


@pytest.mark.parametrize("kind", ["redis", "amqp"])
@pytest.mark.parametrize("dead", ["broker", "backend", "both"])
def test_refused(web: Any, kind: str, dead: str) -> None:
    """Broker, result backend or both are not there."""
    gone = f"{kind}://127.0.0.1:{closed_port()}"
    backend = f"redis://127.0.0.1:{closed_port()}/0"
    broker = gone if dead != "backend" else os.environ["REDIS_URL"]
    check(web(broker=broker, backend=backend if dead != "broker" else ""))


@pytest.mark.parametrize("kind", ["redis", "amqp"])
@pytest.mark.parametrize("dead", ["broker", "backend", "both"])
def test_accepted_and_never_answered(web: Any, kind: str, dead: str) -> None:
    """A black hole: it accepts, and nothing ever comes back."""
    with listener() as port, listener() as other:
        broker = f"{kind}://127.0.0.1:{port}" if dead != "backend" else os.environ["REDIS_URL"]
        check(
            web(broker=broker, backend=f"redis://127.0.0.1:{other}/0" if dead != "broker" else "")
        )


def test_frozen_while_connected(web: Any, own_redis: servers.Private) -> None:
    """Broker and backend freeze under a process that holds connections to them."""
    process = web("connected", broker=own_redis.url, backend=own_redis.url)
    own_redis.freeze()
    check(process)
    check(process)


def test_frozen_and_back(web: Any, own_redis: servers.Private, processes: Processes) -> None:
    """What was asked for during the outage arrives after it, each message once."""
    process = web(broker=own_redis.url, backend=own_redis.url)
    own_redis.freeze()
    check(process)
    own_redis.thaw()
    env = {"GUARD_TEST_BROKER_URL": own_redis.url, "REDIS_URL": own_redis.url}
    processes.relay(env=env)
    wait_for(lambda: _messages_at(own_redis.url) == 10 + 20, what="everything to arrive")


def _messages_at(url: str) -> int:
    import redis

    prefix = os.environ["GUARD_TEST_PREFIX"]
    with contextlib.closing(redis.Redis.from_url(url)) as client:
        keys = [key for key in client.keys(f"{prefix}*") if client.type(key) == b"list"]
        return sum(client.llen(key) for key in keys)


def test_rabbitmq_under_memory_alarm(web: Any, own_server: Own, processes: Processes) -> None:
    """A broker that takes no messages: the request doesn't ask it; the relay sends when it does.

    What the relay wrote before it was told of the alarm lies in the broker's socket and can
    come out later, so a message may arrive twice; each job arrives.
    """
    rabbit = own_server("amqp")
    process = web(broker=rabbit.url)
    rabbit.tell("rabbitmqctl", "set_vm_memory_high_watermark", "0")
    check(process)
    relay = processes.relay(env={"GUARD_TEST_BROKER_URL": rabbit.url})
    wait_for(lambda: "outage" in relay.log, what="the relay to meet the alarm")
    ids: set[str] = set()
    assert not _arrive(rabbit.url, ids)
    rabbit.tell("rabbitmqctl", "set_vm_memory_high_watermark", "0.8")
    wait_for(lambda: len(_arrive(rabbit.url, ids)) == 10 + 20, timeout=40, what="all to arrive")


def _arrive(url: str, ids: set[str]) -> set[str]:
    queues = [f"{os.environ['GUARD_TEST_PREFIX']}{name}" for name in ("celery", "high")]
    ids |= {headers_of(entry)["id"] for entry in take_all(url, queues)}
    return ids
