"""Every error the toolkit raises: one tree under :class:`GuardError`.

::

    GuardError
    ├── EnqueueError             the call that asked for work is refused; nothing was written
    │   ├── MissingKey           the key template found no value
    │   ├── KeyConflict          the key is taken by a job with other arguments
    │   ├── KeyBusy              another open transaction holds the key (or a deadlock chose us)
    │   ├── NotSerializable      an argument has no faithful encoding
    │   ├── PayloadTooLarge      the finished message is over the size limit
    │   ├── AdmissionRefused     a limit of the lane or the tenant is reached; come back later
    │   ├── BadSchedule          an eta, countdown or expiry that names no instant
    │   └── WrongDatabase        the open transaction is not on the ledger's database
    ├── LeaseLost                the attempt no longer holds its job; its writes are void
    ├── NoCurrentJob             no guarded body is running here
    ├── EffectInTransaction      an outside effect or checkpoint inside an atomic body
    ├── UnknownOutcome           an outside call has no answer yet
    ├── JobError                 the stored end of a job, raised to whoever waits for it
    │   └── JobCancelled         … of one that was cancelled
    └── Verdict                  raised by a task body to say how its attempt ended
        ├── Transient            try again, counted
        ├── Permanent            never try again
        ├── RetryAfter           come back later, nothing used up
        │   └── Throttled        a limit of our own says so
        │       └── LimitsAway   whoever keeps the limits does not answer
        └── Cancelled            the job was asked to stop

A message left out is the first line of the class's docstring.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import cast


class GuardError(Exception):
    """Something the guard refuses or reports."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message or _first_line(type(self)))


def _first_line(kind: type[GuardError]) -> str:
    # Two backquotes are the docstring's markup; whoever reads a log knows one.
    return (kind.__doc__ or "").strip().splitlines()[0].replace("``", "`")


class EnqueueError(GuardError):
    """The job was not taken; nothing was written."""


class MissingKey(EnqueueError):
    """The task's key needs a value that the call did not give."""


class KeyConflict(EnqueueError):
    """This key already names a job with other arguments."""


class KeyBusy(EnqueueError):
    """Another transaction is just enqueueing this key; try again when it has ended."""


class NotSerializable(EnqueueError):
    """An argument cannot be encoded without changing its value or type."""


class PayloadTooLarge(EnqueueError):
    """The message is larger than ``outbox.payload_limit``."""


class BadSchedule(EnqueueError):
    """The eta, countdown or expiry names no instant."""


class WrongDatabase(EnqueueError):
    """A transaction is open on another database than the one that holds the ledger."""


class AdmissionRefused(EnqueueError):
    """There is no room for this work now; nothing was written.

    :param reason: the code of what was reached (``depth``, ``age``, ``tenant_rate``, …), or
        ``switch`` where an operator turned such requests away.
    :param limit: the setting that says so (``lanes.low.admission.depth``), or the switch.
    :param retry_after: seconds after which to ask again.
    """

    def __init__(self, reason: str, limit: str = "", retry_after: float = 1.0) -> None:
        super().__init__(reason)
        # All three in ``args``, so that a copy made from them is whole.
        self.args = (reason, limit, retry_after)
        self.reason = reason
        self.limit = limit
        self.retry_after = retry_after

    def __str__(self) -> str:
        why = self.limit if self.reason == "switch" else f"{self.limit} is reached"
        return f"refused ({self.reason}): {why}; ask again in {self.retry_after:.0f} s"

    @property
    def status(self) -> int:
        """The HTTP status: 429 for a tenant's own quota, 503 for load."""
        return 429 if self.reason.startswith("tenant") else 503


class LeaseLost(GuardError):
    """This attempt no longer holds its job; nothing it writes will be kept."""


class NoCurrentJob(GuardError):
    """No guarded job is running here: the task was called as a function, or nothing was."""


class EffectInTransaction(GuardError):
    """An outside effect cannot be undone by a rollback: declare the task ``atomic=False``."""


class UnknownOutcome(GuardError):
    """An outside call was sent and has no answer yet."""


class JobError(GuardError):
    """The job ended without success.

    :param message: what happened, safe to show.
    :param state: the state the job ended in (``failed``, ``dead``, …).
    :param reason: a machine-readable reason code (``permanent``, ``timed_out``, …).
    """

    def __init__(self, message: str = "", state: str = "", reason: str = "") -> None:
        super().__init__(message)
        # All three in ``args``: Celery rebuilds a stored exception from them.
        self.args = (self.args[0], state, reason)
        self.state = state
        self.reason = reason

    def __str__(self) -> str:
        return str(self.args[0])


class JobCancelled(JobError):
    """The job was cancelled."""


class Verdict(GuardError):
    """Says how an attempt ended."""


class Transient(Verdict):
    """The attempt failed in a way that may pass; it counts and is tried again."""


class Permanent(Verdict):
    """Trying again cannot help; the job ends failed."""


class RetryAfter(Verdict):
    """Come back in ``seconds``; nothing is used up.

    In a task with a dependency, or inside ``with dependency(…):``, it pauses that dependency for
    all workers.

    :param after: seconds, or what a provider sent as ``Retry-After`` (seconds or a date of HTTP, as
        text), or an aware datetime. Text that is neither counts as a second; what lies in the past
        is now.
    :raises ValueError: when the number is not finite, or the datetime names no zone.
    """

    def __init__(self, after: float | str | datetime, message: str = "") -> None:
        super().__init__(message)
        self.args = (after, self.args[0])
        self.until = _instant(after)
        self.seconds = _seconds(after, self.until)

    def __str__(self) -> str:
        return str(self.args[1])


def _instant(after: float | str | datetime) -> datetime | None:
    if isinstance(after, datetime):
        if after.tzinfo is None:
            raise ValueError(f"RetryAfter takes a datetime with a time zone, not {after!r}")
        return after
    if not isinstance(after, str) or _number(after) is not None:
        return None
    try:
        found = parsedate_to_datetime(after)
    except ValueError:
        return None
    # The oldest of HTTP's three forms names no zone; all of them are in GMT.
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _seconds(after: float | str | datetime, until: datetime | None) -> float:
    if until is not None:
        # For display; whoever acts on it asks the database's clock, or Redis'.
        return max(0.0, (until - datetime.now(UTC)).total_seconds())
    if isinstance(after, str):
        number = _number(after)
        return 1.0 if number is None else number
    seconds = float(cast(float, after))
    if not math.isfinite(seconds):
        raise ValueError(f"RetryAfter takes a finite number of seconds, not {after!r}")
    return max(0.0, seconds)


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if 0 <= number < math.inf else None


class Throttled(RetryAfter):
    """A limit of a dependency is reached; the job waits for its place.

    :param reason: ``rate``, or ``breaker`` when the dependency is being left alone.
    """

    def __init__(self, seconds: float, message: str = "", reason: str = "rate") -> None:
        super().__init__(seconds, message)
        self.args = (seconds, self.args[1], reason)
        self.reason = reason


class LimitsAway(Throttled):
    """Whoever keeps the limits (Redis, the database) does not answer, so nobody calls."""

    def __init__(self, message: str = "", seconds: float = 1.0) -> None:
        super().__init__(seconds, message)
        self.args = (self.args[1], seconds)

    def __str__(self) -> str:
        return str(self.args[0])


class Cancelled(Verdict):
    """The job was asked to stop, and its body did."""
