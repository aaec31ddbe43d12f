"""The one setting, ``CELERY_GUARD``: a nested dict, read once into frozen dataclasses.

Every time is in seconds (a number or a :class:`~datetime.timedelta`), every size in bytes.
Reading is cached until Django says that the setting changed. All faults are reported at
once, each with the nearest known name: the system check ``celery_guard.E001`` says them, and
whatever works with the settings refuses with them (:class:`ImproperlyConfigured`). What only
declares, while modules are imported, goes on, or no check could start.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping

from django.conf import settings as django_settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed

from celery_guard.conf.modes import Mode, Stage
from celery_guard.conf.reading import build, default_queue, read_settings
from celery_guard.conf.rollout import Fallback, Rollout
from celery_guard.conf.sections import (
    DEFAULT_LANES,
    Admission,
    Breaker,
    Dependency,
    Lane,
    LaneAdmission,
    LimitsOf,
    OnFull,
    Outbox,
    Relay,
    Retention,
    Run,
    Scale,
    Settings,
    Small,
    Snapshot,
    Status,
    Sweep,
    Tenants,
    Window,
)

__all__ = [
    "DEFAULT_LANES",
    "Admission",
    "Breaker",
    "Dependency",
    "Fallback",
    "Lane",
    "LaneAdmission",
    "LimitsOf",
    "Mode",
    "OnFull",
    "Outbox",
    "Relay",
    "Retention",
    "Rollout",
    "Run",
    "Scale",
    "Settings",
    "Small",
    "Snapshot",
    "Stage",
    "Status",
    "Sweep",
    "Tenants",
    "Window",
    "guard_settings",
    "read_settings",
    "sound_settings",
    "tenant_settings",
    "use_default_queue",
]


@functools.cache
def guard_settings() -> Settings:
    """The settings in force.

    :raises ImproperlyConfigured: naming every fault at once.
    """
    settings, faults = read_settings(getattr(django_settings, "CELERY_GUARD", {}))
    if faults:
        raise ImproperlyConfigured("CELERY_GUARD is wrong:\n" + "\n".join(f"- {f}" for f in faults))
    return settings


def sound_settings() -> Settings | None:
    """The settings in force, or None while they are wrong, which E001 says by itself."""
    _, faults = read_settings(getattr(django_settings, "CELERY_GUARD", {}))
    return None if faults else guard_settings()


def use_default_queue(name: str) -> None:
    """Make ``name``, the default queue of the installed Celery app, the queue of ``medium``."""
    if [name] != default_queue:
        default_queue[:] = [name]
        guard_settings.cache_clear()


def tenant_settings(given: Mapping[str, object], path: str) -> Tenants:
    """``tenants`` with what ``given`` changes in it.

    :raises ImproperlyConfigured: naming every fault, each after ``path``.
    """
    faults: list[str] = []
    found = build(Tenants, given, path, faults)
    if faults:
        raise ImproperlyConfigured("; ".join(faults))
    changed = {name: getattr(found, name) for name in given}
    return dataclasses.replace(guard_settings().tenants, **changed)


def _forget(*, setting: str, **_: object) -> None:
    if setting in ("CELERY_GUARD", "CELERY_TASK_DEFAULT_QUEUE"):
        guard_settings.cache_clear()


setting_changed.connect(_forget, dispatch_uid="celery_guard.conf")
