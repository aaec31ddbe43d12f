"""The pytest plugin: fixtures that need pytest-django, and import nothing of Django before a test."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture
def drain_jobs(db: None) -> Callable[..., Any]:
    """:func:`celery_guard.testing.drain`, with the database opened as by ``db``."""
    from celery_guard.testing import drain

    return drain


@pytest.fixture
def enqueued_jobs(db: None) -> Callable[..., Any]:
    """:func:`celery_guard.testing.assert_enqueued`, with the database opened as by ``db``."""
    from celery_guard.testing import assert_enqueued

    return assert_enqueued


@pytest.fixture
def prove_task(db: None) -> Callable[..., Any]:
    """:func:`celery_guard.testing.prove`; with ``transactional_db`` too, processes really die."""
    from celery_guard.testing import prove

    return prove
