"""Mismatches in the admin."""

from __future__ import annotations

import uuid

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client

from celery_guard.enqueue.rollout.differing import Difference, keep
from celery_guard.models import Mismatch
from tests.watch.admin.operators import Operator
from tests.watch.admin.pages import get, text

pytestmark = [pytest.mark.django_db, pytest.mark.mariadb]

MISMATCHES = "/admin/celery_guard/mismatch/"


def found() -> Mismatch:
    """A group with two finds."""
    for _ in range(2):
        keep("default", "shop.price", uuid.uuid4(), Difference("result.total", "result.total: int"))
    return Mismatch.objects.get()


def test_a_group_is_shown_with_its_count(viewer: Client) -> None:
    """And no way to settle it without the permission."""
    one = found()
    page = text(get(viewer, MISMATCHES))
    assert "result.total" in page
    assert one.count == 2
    assert "/settle/" not in text(get(viewer, f"{MISMATCHES}{one.pk}/change/"))
    assert viewer.post(f"{MISMATCHES}{one.pk}/settle/").status_code == 403


def test_it_is_settled_by_post_and_opened_by_the_next(operator: Operator) -> None:
    """Who said so stays until it is found again."""
    one, client = found(), operator("steer_jobs")
    assert "/settle/" in text(get(client, f"{MISMATCHES}{one.pk}/change/"))
    assert client.get(f"{MISMATCHES}{one.pk}/settle/").status_code == 405
    for _ in range(2):
        assert client.post(f"{MISMATCHES}{one.pk}/settle/").status_code == 302
    one.refresh_from_db()
    assert one.settled_by == LogEntry.objects.get().user.get_username()
    assert client.post(f"{MISMATCHES}0/settle/").status_code == 404
    assert found().settled_at is None
