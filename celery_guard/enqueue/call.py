"""What an enqueueing call knows and a finished message no longer shows."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import numbers
import uuid
import weakref
from collections.abc import Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from celery_guard.conf.modes import Mode
from celery_guard.errors import BadSchedule
from celery_guard.outbox.capture import instant

if TYPE_CHECKING:
    from celery_guard.enqueue.handle import JobHandle

LONGEST = 100 * 365 * 86400.0
"""Seconds that a countdown or expiry may name: a hundred years."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Enqueued:
    """What became of an enqueueing call.

    ``created`` is False when the key was taken and ``job_id`` is the job that holds it.
    """

    job_id: int
    public_id: uuid.UUID
    task_id: str
    created: bool
    using: str


@dataclasses.dataclass(slots=True)
class Call:
    """One running ``apply_async``: its relative times, and its answer once there is one.

    ``mode`` was decided when it began, and is stamped on the job.
    """

    delay: float | None = None
    expires_in: float | None = None
    fixed_id: bool = False
    mode: Mode = Mode.ON
    enqueued: Enqueued | None = None
    # Weakly: a handle that its caller drops must go at once, as in Celery, where its end
    # cancels the subscription that another result of the same id may make after it.
    handle: weakref.ref[JobHandle] | None = None

    def answer(self, handle: JobHandle) -> JobHandle:
        """``handle``, made to name the job that this call came to, now or when its batch ends."""
        self.handle = weakref.ref(handle)
        if self.enqueued is not None:
            handle.answered_by(self.enqueued)
        return handle

    def came_to(self, enqueued: Enqueued) -> None:
        """Note what became of the call, and tell its handle, if somebody still holds it."""
        self.enqueued = enqueued
        if self.handle is not None and (handle := self.handle()) is not None:
            handle.answered_by(enqueued)


_call: ContextVar[Call | None] = ContextVar("guard_call", default=None)


@contextlib.contextmanager
def calling(call: Call | None) -> Iterator[None]:
    """Make ``call`` the running one; None hides the running one from calls within it."""
    token = _call.set(call)
    try:
        yield
    finally:
        _call.reset(token)


def running_call() -> Call | None:
    """The ``apply_async`` that runs in this context, if any."""
    return _call.get()


def checked_schedule(task: str, options: dict[str, Any]) -> Call:
    """The call's times, with those that lie in the past set to now.

    :raises BadSchedule: naming every time that is none.
    """
    faults: list[str] = []
    call = Call(
        delay=_seconds("countdown", options.get("countdown"), faults),
        expires_in=_seconds("expires", options.get("expires"), faults),
    )
    if call.delay is not None:
        options["countdown"] = call.delay
    for name in ("eta", "expires"):
        _instant(name, options.get(name), faults)
    if faults:
        raise BadSchedule(f"{task}: " + "; ".join(faults))
    return call


def _seconds(name: str, value: object, faults: list[str]) -> float | None:
    if value is None or (name == "expires" and not isinstance(value, numbers.Real)):
        return None
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not value <= LONGEST:
        faults.append(f"{name} {value!r} is no number of seconds below a hundred years")
        return None
    return max(0.0, float(value))


def _instant(name: str, value: object, faults: list[str]) -> None:
    if name == "expires" and isinstance(value, numbers.Real):
        return
    try:
        instant(value)  # type: ignore[arg-type]
    except BadSchedule as error:
        faults.append(f"{name} {error}")


def in_event_loop() -> bool:
    """Whether this thread runs an event loop, where Django allows no database work."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
