"""The record of the fallback in the admin."""

from __future__ import annotations

import pytest
from django.test import Client

from celery_guard.enqueue.rollout import bounds
from tests.watch.admin.operators import Operator
from tests.watch.admin.pages import get, text

pytestmark = [pytest.mark.django_db, pytest.mark.mariadb]

FALLBACKS = "/admin/celery_guard/fallback/"


def test_each_use_is_shown_with_what_came_of_it(viewer: Client, operator: Operator) -> None:
    """To whoever may view it, and nobody else."""
    slot = bounds.take("default", task="shop.print_ticket", lane="high")
    assert isinstance(slot, int)
    assert bounds.give_back("default", slot, "succeeded")
    page = text(get(viewer, FALLBACKS))
    assert "shop.print_ticket" in page
    assert "succeeded" in page
    assert operator(view=False).get(FALLBACKS).status_code == 403
