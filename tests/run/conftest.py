"""The fixtures of this folder."""

from collections.abc import Iterator

import pytest

from celery_guard import events


@pytest.fixture
def heard() -> Iterator[list[events.Event]]:
    """The events of this test, as they happen."""
    said: list[events.Event] = []
    receiver = events.receive(said.append)
    yield said
    events._receivers.remove(receiver)
