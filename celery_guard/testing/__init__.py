"""Test your own guarded tasks: no broker, no result backend, the real ledger.

In: what a test enqueued. Out: the same rows a worker would leave. :func:`drain` releases, claims
and runs what waits; :func:`assert_enqueued` looks for a job; :func:`prove` lets a task die at
every fault point and compares what is left with an undisturbed run. All of it works in Django's
``TestCase`` and ``TransactionTestCase`` and under pytest-django.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from celery_guard.testing.asking import assert_enqueued as assert_enqueued
    from celery_guard.testing.draining import Drained as Drained
    from celery_guard.testing.draining import drain as drain
    from celery_guard.testing.proving import Proof as Proof
    from celery_guard.testing.proving import prove as prove

# Lazy: pytest loads the plugin beside this file before Django is set up.
_HOMES = {
    "Drained": "draining",
    "Proof": "proving",
    "assert_enqueued": "asking",
    "drain": "draining",
    "prove": "proving",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
