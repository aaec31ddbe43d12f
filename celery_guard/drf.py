"""The door for Django REST framework (the extra ``drf``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rest_framework.views import exception_handler, set_rollback

from celery_guard.errors import AdmissionRefused
from celery_guard.middleware import problem


def refusal_handler(error: Exception, context: Mapping[str, Any]) -> Any:
    """An ``EXCEPTION_HANDLER`` that answers a refused admission with 429 or 503.

    Everything else goes to the framework's own handler.
    """
    if isinstance(error, AdmissionRefused):
        set_rollback()
        return problem(error)
    return exception_handler(error, dict(context))
