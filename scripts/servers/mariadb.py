"""MariaDB: one that answers on the standard port, or a private copy."""

import contextlib
import os
import secrets
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pymysql

from servers.accounts import Account, unprivileged
from servers.binaries import program, wheels_only
from servers.errors import ServerUnavailable
from servers.ground import Ground
from servers.kinds import Kind
from servers.private import Recipe
from servers.processes import tethered
from servers.shared import fresh_name, named

STANDARD_URL = "mysql://root@127.0.0.1:3306/"
# A crash of the machine may lose data then, a crash of the server may not: 2 hands every commit over.
VOLATILE = ("--innodb-flush-log-at-trx-commit=2", "--innodb-flush-method=nosync")


@contextlib.contextmanager
def recipe(place: Ground, durable: bool) -> Iterator[Recipe | None]:
    """How to start MariaDB, its data folder made; None where it is not installed."""
    server, install = program("mariadbd"), program("mariadb-install-db")
    if wheels_only() or server is None or install is None:
        yield None
        return
    account = unprivileged("mysql")
    folder = place.folder("mariadb", account)
    password = secrets.token_urlsafe(16)
    _make_data(install, folder, account)
    # In a file, since command lines can be read by everybody on the machine. One statement a line.
    first = folder / "first.sql"
    first.write_text(
        f"ALTER USER root@localhost IDENTIFIED BY '{password}';\n"
        "CREATE DATABASE IF NOT EXISTS guard CHARACTER SET utf8mb4;\n"
    )
    if account is not None:
        first.chmod(0o600)
        os.chown(first, account.uid, account.gid)
    options = [f"--datadir={folder / 'data'}", f"--init-file={first}", "--bind-address=127.0.0.1"]
    options += [f"--socket={folder / 's'}", f"--pid-file={folder / 'pid'}", "--skip-log-bin"]
    options += VOLATILE if not durable else ()
    yield Recipe(
        name="MariaDB",
        folder=folder,
        argv=lambda port: [str(server), "--no-defaults", *options, f"--port={port}"],
        url=lambda port: f"mysql://root:{password}@127.0.0.1:{port}/guard",
        ready=answers,
        account=account,
    )


def connect(url: str) -> "pymysql.Connection[pymysql.cursors.Cursor]":
    """A connection in autocommit to the server at `url`, with no database chosen."""
    parts = urlsplit(url)
    return pymysql.connect(
        host=parts.hostname,
        port=parts.port or 3306,
        user=unquote(parts.username or "root"),
        password=unquote(parts.password or ""),
        connect_timeout=5,
        autocommit=True,
    )


def answers(url: str) -> bool:
    """Whether a MariaDB at `url` lets us in."""
    try:
        connect(url).close()
    except pymysql.MySQLError:
        return False
    return True


@contextlib.contextmanager
def database(url: str) -> Iterator[str]:
    """The URL of a new database on the MariaDB or MySQL server of `url`, dropped at the end."""
    name = fresh_name()
    with contextlib.closing(connect(url)) as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE `{name}` CHARACTER SET utf8mb4")
    try:
        yield named(url, name)
    finally:
        with contextlib.closing(connect(url)) as connection, connection.cursor() as cursor:
            cursor.execute(f"DROP DATABASE IF EXISTS `{name}`")


def _make_data(install: Path, folder: Path, account: Account | None) -> None:
    command = [str(install), "--no-defaults", f"--datadir={folder / 'data'}", "--skip-test-db"]
    command += ["--auth-root-authentication-method=normal", "--skip-name-resolve"]
    made = subprocess.run(tethered(command, account), cwd=folder, capture_output=True, text=True)
    if made.returncode:
        said = (made.stderr.strip() or made.stdout.strip()).splitlines() or ["it said nothing"]
        raise ServerUnavailable(f"MariaDB's data folder could not be made: {said[-1]}")


KIND = Kind(
    label="MariaDB",
    variable="MARIADB_URL",
    recipe=recipe,
    lease=database,
    answers=answers,
    standard_url=STANDARD_URL,
)
