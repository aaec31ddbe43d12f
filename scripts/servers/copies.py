"""Private copies, made and ended."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from servers.ground import Ground, ground
from servers.kinds import kind_of
from servers.private import Private


@contextlib.contextmanager
def private_copy(kind: str, home: Path, *, durable: bool = True) -> Iterator[Private | None]:
    """One private server (postgres, redis, amqp, mariadb), or None where there is no program for it.

    Data lie below `home` and are removed at the end. `durable=False` lets databases skip fsync.
    ServerUnavailable when there is a program but it does not start.
    """
    with ground(home) as place, copy_on(place, kind, durable=durable) as server:
        yield server


@contextlib.contextmanager
def copy_on(place: Ground, kind: str, *, durable: bool) -> Iterator[Private | None]:
    """Like `private_copy`, on a ground that is there already."""
    with kind_of(kind).recipe(place, durable) as recipe:
        server = Private(recipe) if recipe is not None else None
        try:
            yield server
        finally:
            if server is not None:
                server.stop()
