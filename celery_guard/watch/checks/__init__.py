"""System checks: each has an id, one sentence and a hint that names the line to write.

In: Django's settings, the Celery app's, the tasks' declarations; under ``check --database`` the
databases too. Out: Django's check messages, none when all is well. A check that can't know says
nothing.
"""

from __future__ import annotations

from celery_guard.watch.checks import broker, database, project, tasks
from celery_guard.watch.checks.known import CHECKS, Check

__all__ = ["CHECKS", "Check", "broker", "database", "project", "tasks"]
