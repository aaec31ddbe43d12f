"""Operators with different rights, and clients that are logged in as them."""

from __future__ import annotations

from collections.abc import Callable

from django.contrib.auth.models import Permission, User
from django.test import Client

Operator = Callable[..., Client]

VIEW = (
    *("view_job", "view_attempt", "view_outboxmessage", "view_lanesnapshot", "view_effect"),
    *("view_switch", "view_replay", "view_taskmode", "view_mismatch"),
    *("view_limitchange", "view_fallback"),
)


def log_in(*permissions: str, view: bool = True) -> Client:
    """A client of a staff user who may view, unless told otherwise, and what is named."""
    user = User.objects.create_user(f"staff-{User.objects.count()}", is_staff=True)
    names = (*permissions, *(VIEW if view else ()))
    found = Permission.objects.filter(content_type__app_label="celery_guard", codename__in=names)
    assert found.count() == len(names)
    user.user_permissions.set(found)
    client = Client()
    client.force_login(user)
    return client
