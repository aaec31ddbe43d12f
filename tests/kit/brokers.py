"""Redis and RabbitMQ for tests: shared ones to use, private ones to hurt."""

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import amqp
import pytest
import redis
from kombu import Connection, pools

import servers
from tests.kit.site import app

Own = Callable[[str], servers.Private]


@pytest.fixture
def redis_client() -> Iterator[redis.Redis]:
    """A client of this worker's own Redis database, empty at the start of every test."""
    with contextlib.closing(redis.Redis.from_url(os.environ["REDIS_URL"])) as client:
        yield client


@pytest.fixture(autouse=True)
def _empty_redis(redis_client: redis.Redis) -> None:
    redis_client.flushdb()


BROKERS = os.environ.get("GUARD_TEST_BROKER", "redis,amqp").split(",")


@pytest.fixture(params=BROKERS)
def broker(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Runs the test once on each broker, or on `GUARD_TEST_BROKER`; the value is the broker's URL.

    This process' Celery app and all processes started by the test use it.
    """
    url = os.environ["REDIS_URL" if request.param == "redis" else "AMQP_URL"]
    if not url:
        pytest.skip("RabbitMQ is not here")
    monkeypatch.setenv("GUARD_TEST_BROKER_URL", url)
    with on_broker(url):
        yield url
        if request.param == "amqp":
            delete_queues(url)


@contextlib.contextmanager
def on_broker(url: str) -> Iterator[None]:
    """This process' Celery app talks to the broker at `url` within the block."""
    names = ("broker_url", "broker_read_url", "broker_write_url")
    with celery_conf(**dict.fromkeys(names, url)):
        _forget_connections()
        try:
            yield
        finally:
            _forget_connections()


@contextlib.contextmanager
def celery_conf(**changes: object) -> Iterator[None]:
    """The site's Celery app has other settings within the block."""
    conf: dict[str, Any] = app.conf.changes
    before = dict(conf)
    app.conf.update(changes)
    try:
        yield
    finally:
        conf.clear()
        conf.update(before)


def _forget_connections() -> None:
    # Pools hold connections to the broker of before; kombu would keep closed ones for every URL.
    pools.reset()
    app._pool = app.amqp._producer_pool = None


def delete_queues(url: str) -> None:
    """Remove this worker's queues and exchanges from a RabbitMQ that others use too."""
    prefix = os.environ["GUARD_TEST_PREFIX"]
    names = {f"{prefix}{name}" for name in ("celery", "high", "low", "guard", "control", "events")}
    names |= {name for name in app.amqp.queues if name.startswith(prefix)}
    with Connection(url) as connection:
        for name in names:
            for delete in ("queue_delete", "exchange_delete"):
                # A refusal closes the channel, so each question gets its own.
                with contextlib.suppress(amqp.NotFound), connection.channel() as channel:
                    getattr(channel, delete)(name)


@pytest.fixture
def own_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Own]:
    """`own_server("redis")`: a private server (redis, postgres, amqp, mariadb) to hurt.

    The test is skipped where there is no such server to start.
    """
    home = tmp_path_factory.mktemp("servers")
    with contextlib.ExitStack() as stack:

        def start(kind: str) -> servers.Private:
            server = stack.enter_context(servers.private_copy(kind, Path(home), durable=False))
            if server is None:
                pytest.skip(f"no program to start a private {kind}")
            return server

        yield start


@pytest.fixture
def own_redis(own_server: Own) -> servers.Private:
    """A private Redis that the test may stop, freeze and kill."""
    return own_server("redis")
