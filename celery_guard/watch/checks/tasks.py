"""Checks of time limits, Celery's own and each guarded task's, and of the setting ``TASKS``."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator
from typing import Any

from celery import Celery
from django.core.checks import CheckMessage, register
from django.db import connections

from celery_guard.conf import Mode, Settings, sound_settings
from celery_guard.enqueue.rollout.reading import OWN, stage_in_settings
from celery_guard.relay.broker_app import load_tasks
from celery_guard.watch.checks.known import CHECKS, TAG
from celery_guard.watch.checks.project import celery_app

LONG_TRANSACTION = 30.0
"""Seconds a body in one transaction may take without harm to the ledger."""


def guarded_tasks(app: Celery | None) -> list[Any]:
    """The guarded tasks of the site and the guard's own, by name; none where W017 says why."""
    if app is None or _not_loaded(app) is not None:
        return []
    named = sorted(app.tasks.items())
    return [task for _, task in named if getattr(task, "guard", None) is not None]


def _not_loaded(app: Celery) -> Exception | None:
    try:
        load_tasks(app)
    # A site's module may raise anything, and `manage.py` has to work for whoever mends it.
    except Exception as error:  # noqa: BLE001
        return error
    return None


@register(TAG)
def check_loading(app_configs: Any = None, **options: Any) -> list[CheckMessage]:
    """W017: the modules of the site's tasks can be imported."""
    app = celery_app()
    error = None if app is None else _not_loaded(app)
    return (
        [] if error is None else [CHECKS["W017"].message(error=f"{type(error).__name__}: {error}")]
    )


@register(TAG)
def check_limits(app_configs: Any = None, **options: Any) -> list[CheckMessage]:
    """W003, W006, W011: limits that never come, transactions and leases that outlast them."""
    app, settings = celery_app(), sound_settings()
    if app is None or settings is None:
        return []
    found = list(_never(app.conf.task_soft_time_limit, app.conf.task_time_limit))
    for task in guarded_tasks(app):
        if task.name.startswith(OWN):
            continue  # They do next to nothing, and nobody could follow the hint.
        found += [*_never(task.soft_time_limit, task.time_limit, task)]
        found += [*_long_transaction(app, task), *_outlived_lease(app, settings, task)]
    return found


def wrong_backend(alias: str, faults: str) -> CheckMessage:
    """E011: a backend of Django's Tasks framework that names what is not there; it asks itself."""
    return CHECKS["E011"].message(alias=alias, faults=faults)


def _never(soft: float | None, hard: float | None, task: Any = None) -> Iterator[CheckMessage]:
    if not soft or not hard or soft < hard:
        return
    better = int(hard * 0.9)
    line = f"soft_time_limit={better}" if task else f"CELERY_TASK_SOFT_TIME_LIMIT = {better}"
    owner = task.name if task else "Celery"
    yield CHECKS["W003"].message(owner=owner, soft=soft, hard=hard, line=line)


def _limit(app: Celery, task: Any) -> float:
    limits = (
        task.soft_time_limit or app.conf.task_soft_time_limit,
        task.time_limit or app.conf.task_time_limit,
    )
    return float(min((limit for limit in limits if limit), default=0))


def _long_transaction(app: Celery, task: Any) -> Iterator[CheckMessage]:
    limit = _limit(app, task)
    if task.guard.atomic and limit > LONG_TRANSACTION:
        yield CHECKS["W006"].message(task=task.name, limit=limit, most=LONG_TRANSACTION)


def _outlived_lease(app: Celery, settings: Settings, task: Any) -> Iterator[CheckMessage]:
    alias = task.guard.using or settings.using
    lease, limit = task.guard.lease or settings.run.lease, _limit(app, task)
    if alias not in connections.settings or connections[alias].vendor != "sqlite":
        return
    if limit > lease:
        yield CHECKS["W011"].message(task=task.name, limit=limit, lease=lease, enough=limit + 10)


@register(TAG)
def check_modes(app_configs: Any = None, **options: Any) -> list[CheckMessage]:
    """E010, W015, W016: what the rollout's settings say, and what the tasks do not fit."""
    settings, tasks = sound_settings(), guarded_tasks(celery_app())
    if settings is None or not tasks:
        return []
    named = {task.name: task for task in tasks if not task.name.startswith(OWN)}
    found = [
        CHECKS["W015"].message(task=name, close=_nearest(name, named))
        for name in settings.rollout.modes
        if name not in named
    ]
    for name, task in named.items():
        if stage_in_settings(name).mode is Mode.COMPARE and not task.guard.comparable:
            found.append(CHECKS["E010"].message(task=name))
        if task.guard.fallback and task.guard.lane not in (may := settings.rollout.fallback.lanes):
            told = {"lane": task.guard.lane, "lanes": ", ".join(may) or "none"}
            found.append(CHECKS["W016"].message(task=name, **told))
    return found


def _nearest(name: str, named: Collection[str]) -> str:
    close = difflib.get_close_matches(name, named, n=1, cutoff=0.3)
    return close[0] if close else "its full name"
