"""What the app's page in the admin is made from."""

from __future__ import annotations

from typing import Any

from django import template

from celery_guard.watch.admin.dashboard import dashboard

register = template.Library()


@register.inclusion_tag("admin/celery_guard/dashboard.html", takes_context=True)
def guard_dashboard(context: dict[str, Any]) -> dict[str, Any]:
    """The lanes, the dead letters and the effects that wait for a person."""
    return {"request": context["request"], **dashboard(context["request"])}
