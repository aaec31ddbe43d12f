"""Checks of the broker and of what travels over it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from celery import Celery
from django.core import mail
from django.core.checks import CheckMessage, register
from django.db import connections

from celery_guard.conf import Settings, sound_settings
from celery_guard.redis import redis_url
from celery_guard.watch.checks.known import CHECKS, TAG
from celery_guard.watch.checks.project import celery_app

UNSAFE = ("pickle", "yaml", "application/x-python-serialize", "application/x-yaml")
DEFAULT_VISIBILITY = 3600.0
_FORMATS = ("accept_content", "result_accept_content")
_SERIALIZERS = ("task_serializer", "result_serializer", "event_serializer")
_REDIS = ("redis", "rediss", "valkey", "valkeys", "sentinel", "unix", "redis+socket")
_SUPPORTED = (*_REDIS, "amqp", "amqps", "pyamqp", "py-amqp", "confirm")


@register(TAG)
def check_formats(app_configs: Any = None, **options: Any) -> list[CheckMessage]:
    """E004: a format that can carry code is accepted or written."""
    app = celery_app()
    return [] if app is None else list(_unsafe_formats(app))


def _unsafe_formats(app: Celery) -> Iterator[CheckMessage]:
    for setting in _FORMATS:
        allowed = [str(name) for name in app.conf[setting] or ()]
        if unsafe := [name for name in allowed if name in UNSAFE]:
            safe = [name for name in allowed if name not in UNSAFE] or ["json"]
            yield _unsafe(setting, unsafe, safe)
    for setting in _SERIALIZERS:
        if app.conf[setting] in UNSAFE:
            yield _unsafe(setting, [app.conf[setting]], "json")


def _unsafe(setting: str, unsafe: list[str], value: object) -> CheckMessage:
    return CHECKS["E004"].message(
        setting=setting, name=setting.upper(), formats=", ".join(unsafe), value=repr(value)
    )


@register(TAG)
def check_broker(app_configs: Any = None, **options: Any) -> list[CheckMessage]:
    """W002, W008, W010: the broker, its patience, and the way a commit wakes the relay."""
    app, settings = celery_app(), sound_settings()
    if app is None or settings is None:
        return []
    return [*_transport(app), *_visibility(app, settings), *_wake(app, settings)]


def _scheme(app: Celery) -> str:
    url = app.conf.broker_write_url or app.conf.broker_url or "amqp://"
    return str(url[0] if isinstance(url, list | tuple) else url).partition("://")[0]


def _transport(app: Celery) -> Iterator[CheckMessage]:
    scheme = _scheme(app)
    if scheme in _SUPPORTED or hasattr(mail, "outbox"):
        return
    why = ": what the relay sends never leaves its process" if scheme == "memory" else ""
    yield CHECKS["W010"].message(transport=scheme, why=why)


def _visibility(app: Celery, settings: Settings) -> Iterator[CheckMessage]:
    if _scheme(app) not in _REDIS:
        return
    transport = app.conf.broker_transport_options or {}
    visibility = float(transport.get("visibility_timeout", DEFAULT_VISIBILITY))
    longest = max(settings.run.lease, float(app.conf.task_time_limit or 0))
    if visibility < longest:
        yield CHECKS["W002"].message(visibility=visibility, longest=longest, enough=2 * longest)


def _wake(app: Celery, settings: Settings) -> Iterator[CheckMessage]:
    wake = settings.relay.wake
    if wake == "redis" and not redis_url(app):
        yield CHECKS["W008"].message(wake=wake, reason="has no Redis to go over")
    known = settings.using in connections.settings
    if wake == "notify" and known and connections[settings.using].vendor != "postgresql":
        yield CHECKS["W008"].message(wake=wake, reason="only PostgreSQL has")
