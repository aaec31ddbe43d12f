"""The door to the system checks: what could lose or double work (E), what is unwise (W).

``CHECKS`` is the whole list as data; the rooms' faults are found in ``celery_guard.watch.checks``.
"""

from __future__ import annotations

from celery_guard.watch.checks import CHECKS, Check

__all__ = ["CHECKS", "Check"]
