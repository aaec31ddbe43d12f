"""What the finder has to know of each kind of server."""

import contextlib
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from servers.ground import Ground
    from servers.private import Recipe

# In the order in which they are brought up. Each is loaded when it is wanted: whoever needs no
# MariaDB needs no client for it either.
MODULES = {
    "postgres": "servers.postgres",
    "redis": "servers.redis_server",
    "amqp": "servers.rabbitmq",
    "mariadb": "servers.mariadb",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of server; `way_out` is set for those that are needed and says how to get one."""

    label: str
    variable: str
    recipe: "Callable[[Ground, bool], contextlib.AbstractContextManager[Recipe | None]]"
    lease: Callable[[str], contextlib.AbstractContextManager[str]] = contextlib.nullcontext
    answers: Callable[[str], bool]
    standard_url: str | None = None
    way_out: str | None = None


def kind_of(name: str) -> Kind:
    """The kind called postgres, redis, amqp or mariadb; ValueError for any other name."""
    if name not in MODULES:
        raise ValueError(f"there is no server {name!r}; there are {', '.join(MODULES)}")
    kind: Kind = importlib.import_module(MODULES[name]).KIND
    return kind
