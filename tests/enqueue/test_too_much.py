"""Arguments that are more than an encoder can take are refused by a typed error."""

from __future__ import annotations

from typing import Any

import pytest

from celery_guard import UNKEYED, guarded_task
from celery_guard.enqueue.many import enqueue_many
from celery_guard.errors import NotSerializable
from celery_guard.models import Job

pytestmark = pytest.mark.django_db(transaction=True)


@guarded_task(key=UNKEYED)
def take(value: Any) -> None:
    """Takes anything."""


def nested(depth: int) -> list[Any]:
    """A list in a list in a list."""
    whole: list[Any] = []
    for _ in range(depth):
        whole = [whole]
    return whole


TOO_MUCH = [nested(50_000), {"a": nested(50_000)}, 10**5000, -(10**5000), [10**5000]]
IDS = ["deep", "deep in a dict", "long", "long and negative", "long in a list"]


@pytest.mark.parametrize("value", TOO_MUCH, ids=IDS)
def test_it_is_refused_at_the_call(value: Any) -> None:
    """One by one, in bulk and in a canvas: nothing is written."""
    for ask in (
        lambda: take.delay(value),
        lambda: take.delay(value=value),
        lambda: enqueue_many([take.s(value)]),
        (take.s(1) | take.si(value)).apply_async,
    ):
        with pytest.raises(NotSerializable, match=r"tests\.enqueue\.test_too_much\.take"):
            ask()
    assert not Job.objects.exists()
