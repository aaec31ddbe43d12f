"""What is known of modes ends with each test."""

from collections.abc import Callable, Iterator

import pytest


@pytest.fixture(autouse=True)
def _nothing_known() -> Iterator[None]:
    from celery_guard.enqueue.rollout import reading

    reading.forget()
    yield
    reading.forget()


@pytest.fixture
def stage(db: None) -> Callable[..., None]:
    """`stage(task, "off")`: set at run time, from now."""
    from tests.enqueue.rollout.stages import set_to

    return set_to
