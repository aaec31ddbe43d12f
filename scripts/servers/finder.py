"""Looks for each wanted server in the environment, on the machine and in wheels, in this order."""

import contextlib
import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from servers.binaries import wheels_only
from servers.copies import copy_on
from servers.errors import ServerUnavailable
from servers.ground import ground
from servers.kinds import MODULES, Kind, kind_of
from servers.private import Private


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Where the servers are; the first two are empty strings where they were not wanted.

    `database_url` names a PostgreSQL database that is ours alone. `amqp_url` and `mariadb_url` are
    None where there is no such server, and `notes` then says so, one line each.
    """

    database_url: str
    redis_url: str
    amqp_url: str | None
    mariadb_url: str | None
    notes: tuple[str, ...]
    copies: Mapping[str, Private]

    def private(self, kind: str) -> Private:
        """Our own copy of `kind`, which may be hurt; LookupError when it is somebody else's."""
        if kind not in self.copies:
            raise LookupError(f"{kind} is not a private copy of ours")
        return self.copies[kind]


@contextlib.contextmanager
def running(wants: Collection[str], home: Path, *, durable: bool = True) -> Iterator[Found]:
    """The wanted servers (of postgres, redis, amqp, mariadb), running until the block is left.

    Private copies keep their data below `home`, end with the block and with the calling thread,
    however it dies, and skip fsync with `durable=False`. On a server that was found running only a
    new database is used, and dropped at the end. ServerUnavailable when PostgreSQL or Redis is
    wanted and can't be had.
    """
    # In the order of MODULES; a name that is not in it is refused by `kind_of`.
    kinds = {name: kind_of(name) for name in (*MODULES, *wants) if name in wants}
    urls: dict[str, str] = {}
    copies: dict[str, Private] = {}
    notes: list[str] = []
    with contextlib.ExitStack() as stack:
        place = stack.enter_context(ground(home))
        for name, kind in kinds.items():
            given = _given(kind)
            if given is not None:
                urls[name] = stack.enter_context(kind.lease(given))
                continue
            try:
                copy = stack.enter_context(copy_on(place, name, durable=durable))
            except ServerUnavailable as error:
                notes.append(_missing(kind, str(error)))
                continue
            if copy is None:
                notes.append(_missing(kind, "no server found, none installed"))
            else:
                urls[name], copies[name] = copy.url, copy
        yield Found(
            database_url=urls.get("postgres", ""),
            redis_url=urls.get("redis", ""),
            amqp_url=urls.get("amqp"),
            mariadb_url=urls.get("mariadb"),
            notes=tuple(notes),
            copies=copies,
        )


def _given(kind: Kind) -> str | None:
    if wheels_only():
        return None
    url = os.environ.get(kind.variable)
    if url:
        if not kind.answers(url):
            raise ServerUnavailable(f"{kind.variable} is set, but no {kind.label} answers there")
        return url
    if kind.standard_url is not None and kind.answers(kind.standard_url):
        return kind.standard_url
    return None


def _missing(kind: Kind, why: str) -> str:
    if kind.way_out is not None:
        raise ServerUnavailable(
            f"{kind.label} is needed ({why}): set {kind.variable}, or {kind.way_out}"
        )
    return f"{kind.label} ({why})"
