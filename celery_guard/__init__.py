"""Background jobs that are safe by construction, for Django sites on Celery.

The rooms, in the order in which things happen to a job:

======== ==========================================================================
enqueue  someone asks for work: key, admission, lane
jobs     the ledger: jobs, attempts, states and moves
outbox   the promise, written in the caller's transaction
relay    promise to broker: wake on commit, release, publish, send again
settle   make the outside world agree: effects and their answers
run      in the worker: claim, body, outcome, answer
watch    see it: snapshot, metrics, admin
======== ==========================================================================

The public names below are loaded on first use: importing the package needs neither configured
settings nor loaded apps. Errors and verdicts never do; the others are for modules that Django or
Celery's autodiscovery loads, such as ``models``, ``views`` and ``tasks``.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "Provider": "settle.provider",
    "StillUnknown": "settle.provider",
    "NotApplied": "settle.provider",
    "Applied": "settle.provider",
    "AdmissionRefused": "errors",
    "GuardError": "errors",
    "JobError": "errors",
    "KeyConflict": "errors",
    "Permanent": "errors",
    "RetryAfter": "errors",
    "Transient": "errors",
    "UNKEYED": "enqueue.declaration",
    "coalesce": "enqueue.coalescing",
    "debounce": "enqueue.coalescing",
    "admit": "enqueue.admission.admit",
    "admits": "enqueue.admission.marks",
    "enqueue_many": "enqueue.many",
    "batch": "enqueue.bulk",
    "install": "enqueue.install",
    "current_job": "run.current",
    "effect": "run.effects",
    "accepted": "watch.status.accepted",
    "dependency": "run.limits",
    "GuardedTask": "task",
    "guarded_task": "task",
}

__all__ = [
    "UNKEYED",
    "AdmissionRefused",
    "Applied",
    "GuardError",
    "GuardedTask",
    "JobError",
    "KeyConflict",
    "NotApplied",
    "Permanent",
    "Provider",
    "RetryAfter",
    "StillUnknown",
    "Transient",
    "accepted",
    "admit",
    "admits",
    "batch",
    "coalesce",
    "current_job",
    "debounce",
    "dependency",
    "effect",
    "enqueue_many",
    "guarded_task",
    "install",
]

if TYPE_CHECKING:
    from celery_guard.enqueue.admission.admit import admit
    from celery_guard.enqueue.admission.marks import admits
    from celery_guard.enqueue.bulk import batch
    from celery_guard.enqueue.coalescing import coalesce, debounce
    from celery_guard.enqueue.declaration import UNKEYED
    from celery_guard.enqueue.install import install
    from celery_guard.errors import (
        AdmissionRefused,
        GuardError,
        JobError,
        KeyConflict,
        Permanent,
        RetryAfter,
        Transient,
    )
    from celery_guard.run.current import current_job
    from celery_guard.run.effects import effect
    from celery_guard.run.limits import dependency
    from celery_guard.settle.provider import Applied, NotApplied, Provider, StillUnknown
    from celery_guard.task import GuardedTask, guarded_task
    from celery_guard.watch.status.accepted import accepted


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(_home_of(name), name)
    globals()[name] = value
    return value


def _home_of(name: str) -> ModuleType:
    from django.core.exceptions import AppRegistryNotReady

    try:
        return importlib.import_module(f"{__name__}.{_HOMES[name]}")
    except AppRegistryNotReady as error:
        raise AppRegistryNotReady(
            f"celery_guard.{name} was imported before Django's apps were loaded, probably by the "
            "module that makes the Celery app: define guarded tasks in a tasks module, which "
            "app.autodiscover_tasks() finds, or name a base class by its path, as in "
            'Celery(…, task_cls="celery_guard:GuardedTask")'
        ) from error


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
