"""Checks of the setting itself and of how the guard is put into the project."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator, Sequence
from typing import Any

from celery import Celery, _state
from django.conf import settings
from django.core import mail
from django.core.checks import CheckMessage, register
from django.core.exceptions import ImproperlyConfigured
from django.urls import NoReverseMatch, reverse
from django.utils.module_loading import import_string

from celery_guard.conf import Settings, read_settings, sound_settings
from celery_guard.enqueue.admission.limits import limits_of_site
from celery_guard.enqueue.admission.marks import MARKED
from celery_guard.enqueue.install import installed
from celery_guard.middleware import AdmissionMiddleware
from celery_guard.relay.broker_app import load_app
from celery_guard.watch.checks.known import CHECKS, TAG
from celery_guard.watch.status.hooks import hook


def celery_app() -> Celery | None:
    """The project's Celery app, or None when there is only Celery's own stand-in."""
    app = load_app()
    stand_in = app is _state.default_app and app.main == "default"  # type: ignore[attr-defined]
    return None if stand_in else app


@register(TAG)
def check_settings(app_configs: Any = None, **options: Any) -> list[CheckMessage]:
    """E001, W004, W009: every fault of the setting at once, and what is unwise in it."""
    _, faults = read_settings(getattr(settings, "CELERY_GUARD", {}))
    if faults:
        return [CHECKS["E001"].message(faults="\n".join(f"- {fault}" for fault in faults))]
    return list(_unwise(sound_settings() or Settings()))


def _unwise(found: Settings) -> Iterator[CheckMessage]:
    if found.outbox.capture == "all":
        yield CHECKS["W004"].message()
    kept = max(found.retention.succeeded, found.retention.failed)
    if found.retention.keys < kept:
        yield CHECKS["W009"].message(keys=found.retention.keys, kept=kept)


@register(TAG)
def check_hooks(app_configs: Any = None, **options: Any) -> list[CheckMessage]:
    """E008: what the settings of the status resource name can be called."""
    return [] if (found := sound_settings()) is None else list(_hooks(found))


def _hooks(found: Settings) -> Iterator[CheckMessage]:
    for name in ("owner", "result"):
        path = getattr(found.status, name)
        try:
            if path:
                hook(f"status.{name}", path)
        except ImproperlyConfigured as error:
            yield CHECKS["E008"].message(fault=error)


@register(TAG)
def check_tenants(app_configs: Any = None, **options: Any) -> list[CheckMessage]:
    """E009: what ``tenants.limits`` names can be called."""
    if (found := sound_settings()) is None:
        return []
    try:
        limits_of_site(found.tenants)
    except ImproperlyConfigured as error:
        return [CHECKS["E009"].message(fault=error)]
    return []


@register(TAG)
def check_installed(app_configs: Any = None, **options: Any) -> list[CheckMessage]:
    """E003, E007: the project's Celery app is there and publishes through the guard."""
    if sound_settings() is None:
        return []
    app = celery_app()
    if app is None:
        return [CHECKS["E003"].message()]
    return [] if installed(app) else [CHECKS["E007"].message(app=app.main)]


@register(TAG)
def check_eager(app_configs: Any = None, **options: Any) -> list[CheckMessage]:
    """W001: tasks run eagerly outside tests."""
    app = celery_app()
    # Django's test environment keeps an outbox for mail from before the checks run.
    if app is None or hasattr(mail, "outbox") or not app.conf.task_always_eager:
        return []
    return [CHECKS["W001"].message()]


@register(TAG)
def check_metrics(app_configs: Any = None, **options: Any) -> Sequence[CheckMessage]:
    """W007: another page is scraped that can't show the guard's metrics."""
    scraped = importlib.util.find_spec("django_prometheus") is not None and any(
        name.startswith("django_prometheus") for name in settings.INSTALLED_APPS
    )
    if not (scraped and os.environ.get("PROMETHEUS_MULTIPROC_DIR")) or _is_routed():
        return []
    return [CHECKS["W007"].message()]


@register(TAG)
def check_admission(app_configs: Any = None, **options: Any) -> list[CheckMessage]:
    """W014: views are marked, and nothing reads the marks."""
    # A subclass of the site's own does as well, so look by name at what is there.
    asks = any(_is_admission(name) for name in settings.MIDDLEWARE)
    if asks or not MARKED:
        return []
    return [CHECKS["W014"].message(views=", ".join(sorted(set(MARKED))[:3]))]


def _is_admission(name: str) -> bool:
    try:
        found = import_string(name)
    except ImportError:
        return False  # Django says so itself.
    return isinstance(found, type) and issubclass(found, AdmissionMiddleware)


def _is_routed() -> bool:
    try:
        reverse("celery_guard:metrics")
    except NoReverseMatch:
        return False
    return True
