"""The one place where events become log lines, under the logger ``celery_guard``."""

from __future__ import annotations

import logging

from celery_guard.events import Event, receive

logger = logging.getLogger("celery_guard")


@receive
def log(event: Event) -> None:
    """Write ``event`` as ``room.what fact=value …``, one line whatever the facts hold."""
    if logger.isEnabledFor(event.level):
        facts = "".join(f" {name}={_printed(value)}" for name, value in event.facts.items())
        logger.log(event.level, "%s%s", event.name, facts, extra={"guard": event.facts})


def _printed(value: object) -> str:
    text = str(value)
    # Line breaks and control characters could forge lines; blanks would hide where a fact ends.
    plain = text.isprintable() and not any(mark in text for mark in ' "=')
    return text if plain and text else repr(text)
