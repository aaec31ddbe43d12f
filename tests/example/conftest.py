"""What these tests share: programs that end with the test, and outside parts that run."""

import contextlib
import os
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from demo.programs import Programs, until
from demo.stage import EXAMPLE
from demo.till import Till
from servers import free_port
from servers.postgres import database as postgres_database
from servers.processes import listens
from tests.example.callers import Mailer, Payer
from tests.example.site import Site


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[Programs]:
    """Programs that are ended with the test."""
    with Programs(tmp_path, {"PYTHONPATH": str(EXAMPLE)}) as started:
        yield started


@pytest.fixture
def payer(programs: Programs, tmp_path: Path) -> Payer:
    """A payment provider that runs, and somebody to call it."""
    port, ledger = free_port(), tmp_path / "provider.sqlite3"
    argv = [sys.executable, "-m", "demo.provider", str(port), str(ledger)]
    provider = programs.start("provider", argv)
    until("waiting for the provider", partial(listens, port), provider)
    return Payer(port=port, till=Till(port), program=provider, argv=argv)


@pytest.fixture
def mailer(programs: Programs, tmp_path: Path) -> Mailer:
    """A mail catcher that runs, and somebody to send to it."""
    port, box = free_port(), tmp_path / "mails.sqlite3"
    catcher = programs.start("catcher", [sys.executable, "-m", "demo.catcher", str(port), str(box)])
    until("waiting for the catcher", partial(listens, port), catcher)
    return Mailer(port=port, box=box)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The shop's site on a database of its own; no worker runs."""
    home, port = tmp_path_factory.mktemp("site"), free_port()
    with contextlib.ExitStack() as stack:
        if not (server := os.environ.get("DATABASE_URL")):
            pytest.skip("the shop runs on PostgreSQL here")
        database_url = stack.enter_context(postgres_database(server))
        env = {"PYTHONPATH": str(EXAMPLE), "DJANGO_SETTINGS_MODULE": "demo.settings"}
        started = stack.enter_context(Programs(home, {**env, "DATABASE_URL": database_url}))
        started.run("open_shop", [sys.executable, str(EXAMPLE / "manage.py"), "open_shop"])
        argv = [sys.executable, "-m", "waitress", f"--listen=127.0.0.1:{port}"]
        web = started.start("web", [*argv, "site_config.wsgi:application"])
        until("waiting for the site", partial(listens, port), web)
        yield Site(port=port, database_url=database_url)
