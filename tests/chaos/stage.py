"""Servers, a migrated database, and the environment in which everybody of a run works."""

import contextlib
import dataclasses
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import servers
from tests.kit.ground import HOME, ROOT

PAIRS = {
    "postgres-redis": ("postgres", "redis"),
    "postgres-rabbitmq": ("postgres", "amqp"),
    "mariadb-redis": ("mariadb", "redis"),
    "mariadb-rabbitmq": ("mariadb", "amqp"),
}


class Missing(Exception):
    """A server of the pair is not here."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Servers:
    """The copies that a run has for itself, to stop, freeze and fill."""

    database: servers.Private
    broker: servers.Private


@contextlib.contextmanager
def stage(pair: str, folder: Path, provider_port: int) -> Iterator[None]:
    """Set this process' environment for the pair, which all others inherit; Django is set up.

    :raises Missing: when there is no such server.
    """
    database, broker = PAIRS[pair]
    with servers.running({database, broker, "redis"}, HOME, durable=False) as found:
        url = found.mariadb_url if database == "mariadb" else found.database_url
        broker_url = found.amqp_url if broker == "amqp" else found.redis_url
        if not url or not broker_url:
            raise Missing("; ".join(found.notes))
        _set(_environment(database, url, broker_url, found.redis_url), folder, provider_port)
        try:
            yield
        finally:
            if broker == "amqp":
                from tests.kit.brokers import delete_queues

                delete_queues(broker_url)


@contextlib.contextmanager
def own_stage(pair: str, folder: Path, provider_port: int) -> Iterator[Servers]:
    """Like ``stage``, on copies of this run. The results are in a Redis that nobody hurts.

    :raises Missing: when there is no program for one of the servers.
    """
    with contextlib.ExitStack() as stack:

        def start(kind: str) -> servers.Private:
            copy = stack.enter_context(servers.private_copy(kind, HOME, durable=False))
            if copy is None:
                raise Missing(f"no program to start a private {kind}")
            return copy

        database, broker = PAIRS[pair]
        own = Servers(database=start(database), broker=start(broker))
        url, broker_url = own.database.url, own.broker.url
        _set(_environment(database, url, broker_url, start("redis").url), folder, provider_port)
        yield own


def _set(environment: dict[str, str], folder: Path, provider_port: int) -> None:
    os.environ.update(environment)
    os.environ["CHAOS_PROVIDER_PORT"] = str(provider_port)
    subprocess.run(
        [sys.executable, "-m", "tests.project.manage", "migrate", "-v0"], cwd=ROOT, check=True
    )
    # Only what is started from here on may die of it.
    os.environ["GUARD_FAULT"] = f"in:{folder}"
    _set_up()


def _environment(database: str, url: str, broker_url: str, redis_url: str) -> dict[str, str]:
    paths = (ROOT, ROOT / "scripts", ROOT / "example_project")
    return {
        "MARIADB_URL" if database == "mariadb" else "DATABASE_URL": url,
        "GUARD_TEST_DB": database,
        "REDIS_URL": redis_url,
        "GUARD_TEST_BROKER_URL": broker_url,
        "GUARD_TEST_PREFIX": f"chaos-{secrets.token_hex(4)}-",
        "GUARD_TEST_HOST_RELAY": "0",
        "GUARD_TEST_SCRATCH": str(HOME),
        "DJANGO_SETTINGS_MODULE": "tests.chaos.settings",
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
    }


def _set_up() -> None:
    import django

    django.setup()
