"""Fixtures of the watch room's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from celery_guard import events
from celery_guard.events import Event


@pytest.fixture
def told() -> Iterator[list[Event]]:
    """The events of this room, as they come."""
    found: list[Event] = []

    def keep(event: Event) -> None:
        if event.name.startswith("watch."):
            found.append(event)

    events.receive(keep)
    yield found
    events._receivers.remove(keep)
