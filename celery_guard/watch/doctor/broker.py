"""The broker, and the Redis over which commits wake the relay."""

from __future__ import annotations

from collections.abc import Iterator

import redis
from celery import Celery

from celery_guard import redis as bounded
from celery_guard.conf import guard_settings
from celery_guard.relay.publish.depth import ready_in
from celery_guard.watch.doctor.finding import Finding, fault, ok, warning

TIMEOUT = 3.0
"""Seconds that one server may take to answer."""


def look_at_broker(app: Celery) -> Iterator[Finding]:
    """Whether the relay could publish, and what waits in the broker."""
    queues = [lane.queue for lane in guard_settings().lanes.values()]
    shown = app.connection_for_write().as_uri()
    try:
        waiting = ready_in(app, queues, TIMEOUT)
    # Every transport raises what its library raises; whatever it is, it is the finding.
    except Exception as error:  # noqa: BLE001
        yield fault(
            "broker",
            f"{shown} can't be reached ({type(error).__name__}: {error}): jobs wait in the database",
            "Correct CELERY_BROKER_URL, or start the server. Nothing is lost meanwhile.",
        )
        return
    yield ok("broker", f"{shown} answers and holds {sum(waiting.values())} messages of the lanes")


def look_at_redis(app: Celery) -> Iterator[Finding]:
    """Whether commits can wake the relay, and whether the server may throw messages away."""
    if not (url := bounded.redis_url(app)):
        return
    client = bounded.bounded_client(url, TIMEOUT, app)
    try:
        policy = str(client.info("memory").get("maxmemory_policy", ""))
    except redis.ResponseError as error:
        yield warning("redis", f"it does not tell its memory policy: {error}", "Allow INFO.")
    except bounded.Errors as error:
        yield fault(
            "redis",
            f"it can't be reached ({error}): commits wake nobody, jobs start at the next poll",
            "Correct CELERY_BROKER_URL (or CELERY_GUARD['redis']), or start the server.",
        )
    else:
        yield _policy(policy)
    finally:
        client.close()


def _policy(policy: str) -> Finding:
    if policy in ("", "noeviction"):
        return ok("redis", "it answers and evicts nothing")
    return fault(
        "redis",
        f"maxmemory-policy is {policy}: a full server throws messages and results away",
        "redis-cli config set maxmemory-policy noeviction, and in redis.conf",
    )
