"""Where a measuring process finds its servers and whom it measures, all from the environment."""

import os
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Literal, Self
from urllib.parse import unquote, urlsplit, urlunsplit

ROOT = Path(__file__).resolve().parent.parent
PREFIX = "BENCH_"

Broker = Literal["redis", "amqp"]


@dataclass(frozen=True, kw_only=True)
class Place:
    """The servers of one run; travels to its processes as BENCH_* variables.

    `redis_url` must name a database this run may empty, and the next number another one: the
    harness keeps its own counters there.
    """

    database_url: str = ""
    redis_url: str = ""
    amqp_url: str = ""
    broker: Broker = "redis"
    queue: str = "bench"
    contender: str = ""
    # "off" takes the commit's fsync out of the picture, to see the CPU cost alone.
    synchronous_commit: Literal["on", "off"] = "on"

    @classmethod
    def from_environment(cls) -> Self:
        """Return the place that `environment()` described in a parent process."""
        names = [field.name for field in fields(cls)]
        found = {name: os.environ.get(PREFIX + name.upper()) for name in names}
        return cls(**{name: value for name, value in found.items() if value})

    def environment(self) -> dict[str, str]:
        """Return the variables with which a child process finds this place."""
        own = {PREFIX + name.upper(): value for name, value in asdict(self).items()}
        return {
            **os.environ,
            **own,
            "DJANGO_SETTINGS_MODULE": "benchmarks.settings",
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "scripts")]),
        }

    def measuring(self, contender: str, broker: Broker) -> Self:
        """Return this place for one contender on one broker."""
        return replace(self, contender=contender, broker=broker)

    @cached_property
    def broker_url(self) -> str:
        """The address of the broker under test."""
        return self.amqp_url if self.broker == "amqp" else self.redis_url

    @cached_property
    def counters_url(self) -> str:
        """The Redis database of the harness's own counters."""
        address = urlsplit(self.redis_url)
        number = int(address.path.strip("/") or 0) + 1
        return urlunsplit(address._replace(path=f"/{number}"))

    @cached_property
    def database(self) -> dict[str, object]:
        """The Django settings of the database under test."""
        address = urlsplit(self.database_url)
        return {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": address.path.strip("/"),
            "USER": unquote(address.username or ""),
            "PASSWORD": unquote(address.password or ""),
            "HOST": address.hostname or "",
            "PORT": str(address.port or ""),
            "CONN_MAX_AGE": None,
            "OPTIONS": {"options": f"-c synchronous_commit={self.synchronous_commit}"},
        }


@lru_cache(maxsize=1)
def here() -> Place:
    """Return the place of this process."""
    return Place.from_environment()
