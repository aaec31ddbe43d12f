"""The door for what jobs take along: language, correlation id, whatever a context variable holds."""

from __future__ import annotations

from celery_guard.enqueue.context import carry, carry_language, carry_nothing, carry_variable

__all__ = ["carry", "carry_language", "carry_nothing", "carry_variable"]
