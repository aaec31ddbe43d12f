"""The toolkit's own Redis connections: found once, always bounded, never retried silently."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import redis
from celery import Celery, current_app
from redis.backoff import NoBackoff
from redis.retry import Retry

from celery_guard.conf import guard_settings

_SCHEMES = ("redis://", "rediss://", "unix://")

Errors = (redis.RedisError, OSError)
"""What any call on a bounded client may raise when Redis is away, frozen or refuses."""


def redis_url(app: Celery | None = None) -> str:
    """The URL of the Redis to wake over: the setting, else the broker; empty if there is none."""
    url = guard_settings().redis
    if not url:
        url = str((app or current_app).conf.broker_write_url or "").split(";")[0]
        url = url.replace("redis+socket://", "unix://", 1)
    return url if url.startswith(_SCHEMES) else ""


def bounded_client(url: str, timeout: float, app: Celery | None = None) -> redis.Redis:
    """A client of which no call takes much longer than ``timeout`` seconds, or happens twice.

    No connection is made before the first command.
    """
    return redis.Redis.from_url(
        url,
        socket_timeout=timeout,
        socket_connect_timeout=timeout,
        retry=Retry(NoBackoff(), 0),
        **_tls(url, app or current_app),
    )


def _tls(url: str, app: Celery) -> Mapping[str, Any]:
    # The broker's own TLS options hold for its URL only; another Redis says so in its URL.
    options = app.conf.broker_use_ssl
    if url.startswith("rediss://") and not guard_settings().redis and isinstance(options, dict):
        return options
    return {}
