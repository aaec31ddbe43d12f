"""What a store remembers of one dependency, as numbers."""

from __future__ import annotations

import dataclasses
import json

from celery_guard.relay.limits.rules import MICRO

FIRST_HOLD = 20_000
"""What a call is taken to last before one has ended: who asks too early only asks again."""


@dataclasses.dataclass(slots=True)
class State:
    """All that is remembered of one dependency but its places and permits."""

    bases: list[int] = dataclasses.field(default_factory=list)
    intervals: list[int] = dataclasses.field(default_factory=list)
    tats: list[int] = dataclasses.field(default_factory=list)
    gates: list[int] = dataclasses.field(default_factory=list)
    factor: int = MICRO
    good_from: int = 0
    used: int = 0
    tried: int = 0
    erred: int = 0
    slowed: int = 0
    paused_until: int = 0
    line: int = 0
    hold: int = FIRST_HOLD
    counted_from: int = 0
    fine: int = 0
    failed: int = 0
    open_until: int = 0
    doublings: int = 0
    probed: int = 0
    probe: str = ""
    probe_until: int = 0
    lease: int = 0
    seen: int = 0
    granted: int = 0
    refused: int = 0
    throttled: int = 0
    slowings: int = 0
    openings: int = 0

    @classmethod
    def decode(cls, text: str) -> State:
        """The state that :meth:`encode` wrote."""
        known = {field.name for field in dataclasses.fields(cls)}
        return cls(**{k: v for k, v in json.loads(text or "{}").items() if k in known})

    def encode(self) -> str:
        """The state as text."""
        return json.dumps(dataclasses.asdict(self))
