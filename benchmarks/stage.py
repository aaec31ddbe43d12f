"""The servers of one run: found, migrated, and left as they were."""

import contextlib
import secrets
import subprocess
import sys
from collections.abc import Iterator

import redis

import servers
from benchmarks.place import ROOT, Place

HOME = ROOT / ".cache" / "bench" / "servers"


class Refused(Exception):
    """The run can't begin; the text says why in one line."""


@contextlib.contextmanager
def stage(*, rabbitmq: bool) -> Iterator[Place]:
    """Open PostgreSQL (fsync on), Redis and, if wanted and there is one, RabbitMQ.

    Raises `Refused` when REDIS_URL names a database that is not empty: a run empties it.
    """
    wants = {"postgres", "redis", *(["amqp"] if rabbitmq else [])}
    HOME.mkdir(parents=True, exist_ok=True)
    with servers.running(wants, HOME, durable=True) as found:
        place = Place(
            database_url=found.database_url,
            redis_url=found.redis_url,
            amqp_url=found.amqp_url or "",
            # A RabbitMQ is often shared: the queue's name is this run's alone.
            queue=f"bench_{secrets.token_hex(4)}",
        )
        with _empty_redis(place), _own_queue(place):
            _migrate(place)
            yield place


@contextlib.contextmanager
def _empty_redis(place: Place) -> Iterator[None]:
    clients = [redis.Redis.from_url(url) for url in (place.redis_url, place.counters_url)]
    for client in clients:
        if client.dbsize():
            raise Refused(f"{client} is not empty, and a benchmark would empty it")
    try:
        yield
    finally:
        for client in clients:
            client.flushdb()


@contextlib.contextmanager
def _own_queue(place: Place) -> Iterator[None]:
    try:
        yield
    finally:
        if place.amqp_url:
            _delete_queue(place)


def _delete_queue(place: Place) -> None:
    from kombu import Connection

    with Connection(place.amqp_url) as connection:
        connection.default_channel.queue_delete(place.queue)


def _migrate(place: Place) -> None:
    command = [sys.executable, "-m", "benchmarks.manage", "migrate", "--skip-checks", "-v", "0"]
    made = subprocess.run(
        command, cwd=ROOT, env=place.environment(), capture_output=True, text=True, check=False
    )
    if made.returncode:
        raise Refused(f"the tables could not be made: {made.stderr.strip().splitlines()[-1]}")
