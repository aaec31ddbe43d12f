"""An exception as text that every database can store, and the fingerprint that groups it."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import traceback

from celery_guard.jobs.storable import message_of

# What differs between two occurrences of one error: numbers, ids, and quoted values.
_VARYING = re.compile(
    r"0x[0-9a-f]+|[0-9a-f]{8,}(?:-[0-9a-f]+)*|\d+|'[^']*'|\"[^\"]*\"", re.IGNORECASE
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """What is kept of an exception. ``fingerprint`` is 32 hex digits."""

    type: str
    message: str
    fingerprint: str

    @property
    def text(self) -> str:
        """One line for people."""
        return f"{self.type}: {self.message}"

    def stored(self, state: str, reason: str) -> str:
        """The JSON text of ``job.error``."""
        told = {"type": self.type, "message": self.message, "state": state, "reason": reason}
        return json.dumps(told, ensure_ascii=False)


def failure_of(error: BaseException) -> Failure:
    """What is kept of ``error``; never raises, whatever its ``__str__`` does."""
    kind = f"{type(error).__module__}.{type(error).__qualname__}".removeprefix("builtins.")
    message = message_of(error)
    return Failure(type=kind, message=message, fingerprint=_fingerprint(kind, message, error))


def _fingerprint(kind: str, message: str, error: BaseException) -> str:
    parts = (kind, _VARYING.sub("#", message), _place(error))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]


def _place(error: BaseException) -> str:
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    if not frames:
        return ""
    # The function, not the line: a release that moves code must not split a group.
    return f"{frames[-1].f_globals.get('__name__')}.{frames[-1].f_code.co_qualname}"
