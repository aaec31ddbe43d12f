"""What happened, as values; rooms say it here and never write a log line themselves.

A receiver is any callable that takes an event. Receivers run in the emitting thread; one
that raises is logged and never disturbs the room that spoke.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable

_logger = logging.getLogger("celery_guard.events")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One thing that happened, with the words an operator would search for.

    ``name`` is ``room.what`` in the past tense (``relay.published``); ``level`` a
    :mod:`logging` level; ``facts`` holds plain values only, never arguments of a task.
    """

    name: str
    level: int = logging.INFO
    facts: dict[str, object] = dataclasses.field(default_factory=dict)


Receiver = Callable[[Event], None]
_receivers: list[Receiver] = []


def receive(receiver: Receiver) -> Receiver:
    """Call ``receiver`` with every later event of this process (usable as a decorator)."""
    if receiver not in _receivers:
        _receivers.append(receiver)
    return receiver


def emit(name: str, level: int = logging.INFO, **facts: object) -> None:
    """Tell all receivers that ``name`` happened."""
    event = Event(name=name, level=level, facts=facts)
    for receiver in _receivers:
        try:
            receiver(event)
        except Exception:
            _logger.exception("a receiver of celery-guard events failed on %s", name)
