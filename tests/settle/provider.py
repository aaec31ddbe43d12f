"""A provider that lives in a database of its own making: what it applied, it remembers."""

from __future__ import annotations

from collections.abc import Callable

from celery_guard import Applied, NotApplied, StillUnknown
from celery_guard.settle.perform import Sending


class Bank:
    """Applies a charge per call; with ``honours_keys`` a repeated key is applied once.

    ``behave`` runs before or after the charge and may raise.
    """

    def __init__(self, *, honours_keys: bool = False) -> None:
        self.applied: list[str] = []
        self.calls: list[Sending] = []
        self.looks = 0
        self.before: Callable[[], None] = lambda: None
        self.after: Callable[[], None] = lambda: None
        self.blind = False
        self._honours = honours_keys

    def pay(self, sending: Sending) -> dict[str, str]:
        """One charge."""
        self.calls.append(sending)
        self.before()
        if not (self._honours and sending.key in self.applied):
            self.applied.append(sending.key)
        self.after()
        return {"id": f"ch_{sending.key[:8]}"}

    def find(self, sending: Sending) -> Applied | NotApplied | StillUnknown:
        """What became of a charge."""
        self.looks += 1
        if self.blind:
            return StillUnknown()
        if sending.key in self.applied:
            return Applied({"id": f"ch_{sending.key[:8]}"})
        return NotApplied()


def raising(error: Exception) -> Callable[[], None]:
    """A behaviour that fails with ``error``."""

    def fail() -> None:
        raise error

    return fail
