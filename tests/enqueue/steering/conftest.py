"""What is known of switches ends with each test."""

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _nothing_known() -> Iterator[None]:
    from celery_guard.enqueue.steering import reading

    reading.forget()
    yield
    reading.forget()
