"""Brings the servers up before Django reads its settings, once for all workers of a test run.

The process that starts the run finds or starts the servers and says where they are in the
environment; the xdist workers and all processes that tests start inherit it.
"""

import contextlib
import os
import secrets
from pathlib import Path

import django
import pytest
import redis
from django.conf import settings

import servers

ROOT = Path(__file__).resolve().parents[2]
HOME = ROOT / ".cache" / "servers"
SPREAD = "GUARD_TEST_REDIS_URLS"

notes = pytest.StashKey[tuple[str, ...]]()


def configure(config: pytest.Config) -> None:
    """Start what is needed and set Django up. In a worker only the worker's own share is chosen."""
    worker = getattr(config, "workerinput", {}).get("workerid", "")
    if not worker and not (config.option.collectonly or config.option.help):
        _bring_up(config)
    os.environ.setdefault("GUARD_TEST_RUN", secrets.token_hex(4))
    if _workers(config) and not worker:
        # Workers inherit the environment, and pytest-django would read the settings there before
        # the worker has chosen its share.
        os.environ.pop("DJANGO_SETTINGS_MODULE", None)
    else:
        _set_up(int(worker[2:]) if worker else 0)


def _set_up(index: int) -> None:
    if spread := os.environ.get(SPREAD):
        os.environ["REDIS_URL"] = spread.split()[index]
    os.environ["GUARD_TEST_PREFIX"] = f"g{os.environ['GUARD_TEST_RUN']}-{index}-"
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.project.settings"
    django.setup()
    if os.environ["GUARD_TEST_PREFIX"] != settings.PREFIX:
        raise pytest.UsageError("Django's settings were read before the servers were known")


def summary(config: pytest.Config) -> str:
    """One line that says what did not run, or nothing."""
    missing = config.stash.get(notes, ())
    return f"not run here: {', '.join(missing)}" if missing else ""


def must_be_whole() -> bool:
    """Whether a server that is not there is a failure, not a gap: in CI."""
    return os.environ.get("CI") == "true"


def _bring_up(config: pytest.Config) -> None:
    stack = contextlib.ExitStack()
    config.add_cleanup(stack.close)
    database = "mariadb" if on_mariadb() else "postgres"
    try:
        found = stack.enter_context(
            servers.running({database, "redis", "amqp"}, HOME, durable=False)
        )
        urls = _redis_databases(found.redis_url, max(1, _workers(config)))
    except servers.ServerUnavailable as error:
        raise pytest.UsageError(str(error)) from None
    config.stash[notes] = found.notes
    if on_mariadb() and found.mariadb_url is None:
        pytest.exit(summary(config), returncode=1 if must_be_whole() else 0)
    os.environ["DATABASE_URL"] = found.database_url
    os.environ["AMQP_URL"] = found.amqp_url or ""
    os.environ["MARIADB_URL"] = found.mariadb_url or ""
    os.environ[SPREAD] = " ".join(urls)


def on_mariadb() -> bool:
    """Whether this run has MariaDB as its database."""
    return os.environ.get("GUARD_TEST_DB") == "mariadb"


def _workers(config: pytest.Config) -> int:
    return len(getattr(config.option, "tx", None) or ())


def _redis_databases(url: str, count: int) -> list[str]:
    """One database number for each worker; only empty ones, since tests flush them."""
    base = url.rsplit("/", 1)[0]
    free: list[str] = []
    for number in range(64):
        candidate = f"{base}/{number}"
        with contextlib.closing(redis.Redis.from_url(candidate, socket_timeout=5)) as client:
            try:
                if client.dbsize() == 0:
                    free.append(candidate)
            except redis.ResponseError:
                # Past the last database of this server.
                break
        if len(free) == count:
            return free
    raise servers.ServerUnavailable(
        f"the tests need {count} empty Redis databases and found {len(free)}; "
        "point REDIS_URL at a server that is free to be used, or unset it"
    )
