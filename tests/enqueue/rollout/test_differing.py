"""Mismatches are kept whatever the names in a result are made of."""

from __future__ import annotations

import uuid

import pytest
from django.db import transaction

from celery_guard.enqueue.rollout.differing import difference, keep
from celery_guard.models import Mismatch

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.mariadb]


@pytest.mark.parametrize("name", ["a\x00b", "half \udcff"])
def test_a_name_that_no_database_stores_is_told_without_it(name: str) -> None:
    """Two such differences are one group; the comparison's job ends as any other."""
    found = difference({}, {name: 1}, None)
    assert found is not None
    for _ in range(2):
        with transaction.atomic():
            keep("default", "shop.price", uuid.uuid4(), found)
    kept = Mismatch.objects.get()
    assert kept.count == 2
    assert "\ufffd" in kept.difference
    assert "\ufffd" in kept.example
