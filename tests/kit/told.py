"""What the guard says while something happens."""

import contextlib
from collections.abc import Iterator

from celery_guard import events
from celery_guard.events import Event


@contextlib.contextmanager
def told() -> Iterator[list[Event]]:
    """The events of this process inside the block."""
    heard: list[Event] = []

    def keep(event: Event) -> None:
        heard.append(event)

    events.receive(keep)
    try:
        yield heard
    finally:
        events._receivers.remove(keep)
