"""The machine and the versions a report was made with."""

import os
import platform
import subprocess
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psycopg
import redis

from benchmarks.place import ROOT, Place

PACKAGES = (
    "celery-guard",
    "celery",
    "kombu",
    "django",
    "psycopg",
    "redis",
    "django-celery-outbox",
    "django-jaiminho",
    "celery-once",
    "celery-singleton",
    "procrastinate",
)


def facts(place: Place) -> Mapping[str, str]:
    """Return what a reader needs to judge the figures: machine, servers, packages, commit."""
    return {
        "machine": f"{_cpu()}, {os.cpu_count()} cores, {_memory()} GiB, {platform.system()}",
        "load before": f"{os.getloadavg()[0]:.1f}",
        "servers": ", ".join(_servers(place)),
        "Python": platform.python_version(),
        "packages": ", ".join(f"{name} {found}" for name, found in _packages()),
        "commit": _commit(),
    }


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _memory() -> int:
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30)


def _servers(place: Place) -> list[str]:
    with psycopg.connect(place.database_url) as connection:
        answers = [
            connection.execute(f"SHOW {name}").fetchone() for name in ("server_version", "fsync")
        ]
    postgres, fsync = (str(answer[0]) for answer in answers if answer)
    found = redis.Redis.from_url(place.redis_url).info("server")
    names = [f"PostgreSQL {postgres.split()[0]} (fsync {fsync})", f"Redis {found['redis_version']}"]
    return names + ([f"RabbitMQ {_rabbitmq(place)}"] if place.amqp_url else [])


def _rabbitmq(place: Place) -> str:
    from kombu import Connection

    with Connection(place.amqp_url) as connection:
        connection.connect()
        return str(connection.connection.server_properties.get("version", "?"))


def _packages() -> list[tuple[str, str]]:
    found = []
    for name in PACKAGES:
        try:
            found.append((name, version(name)))
        except PackageNotFoundError:
            continue
    return found


def _commit() -> str:
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    try:
        told = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return "unknown"
    return told.stdout.strip() or "unknown"
