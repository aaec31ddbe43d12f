"""What is known about a provider, and what its answers mean."""

from __future__ import annotations

import dataclasses
import difflib
import math
import socket
import ssl
from collections.abc import Iterator
from typing import Any, Literal

from django.core.exceptions import ImproperlyConfigured

from celery_guard.errors import Permanent, RetryAfter
from celery_guard.settle.states import Recovery

Errors = tuple[type[BaseException], ...]

NOT_SENT: Errors = (ConnectionRefusedError, socket.gaierror, ssl.SSLCertVerificationError)
"""Errors that come before a single byte of the request has left."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """A provider's promises.

    :param name: what people call it; kept with each of its effects.
    :param recovery: what may be done about a call without an answer: ``"read_only"``, ``"keyed"``,
        ``"reconcilable"`` or ``"manual"``, see :class:`Recovery`.
    :param key_window: seconds for which it remembers an idempotency key.
    :param timeout: longest that one call may take, in seconds; the lease is extended to cover it.
    :param settle_after: seconds until "not found" in a look-up can be believed.
    :param give_up: seconds of asking after which a person has to decide.
    :param not_sent: exceptions that prove that nothing was sent.
    :param rejected: exceptions that are a documented, final no.
    :raises ImproperlyConfigured: naming every fault at once.
    """

    name: str = ""
    recovery: Recovery | Literal["read_only", "keyed", "reconcilable", "manual"] = Recovery.MANUAL
    key_window: float = 86400.0
    timeout: float = 30.0
    settle_after: float = 60.0
    give_up: float = 86400.0
    not_sent: Errors = ()
    rejected: Errors = ()

    def __post_init__(self) -> None:
        if faults := [*_faults(self)]:
            raise ImproperlyConfigured(f"provider {self.name}: " + "; ".join(faults))

    def proves_not_sent(self, error: BaseException) -> bool:
        """Whether nothing can have happened at the provider."""
        return any(isinstance(e, (*NOT_SENT, *self.not_sent)) for e in _chain(error))

    def is_refusal(self, error: BaseException) -> bool:
        """Whether the provider has said no for good."""
        return isinstance(error, (Permanent, *self.rejected))

    def asks_for_patience(self, error: BaseException) -> bool:
        """Whether the provider has turned the call away unapplied, for now."""
        return isinstance(error, RetryAfter)


def _faults(provider: Provider) -> Iterator[str]:
    if provider.recovery not in Recovery.values:
        close = difflib.get_close_matches(str(provider.recovery), Recovery.values, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        yield f"recovery {provider.recovery!r} is not one of {', '.join(Recovery.values)}{hint}"
    for name in ("key_window", "timeout", "settle_after", "give_up"):
        value = getattr(provider, name)
        number = isinstance(value, int | float) and not isinstance(value, bool)
        least = "0 or more" if name == "settle_after" else "above 0"
        if not number or not math.isfinite(value) or value < 0 or (value == 0 and "above" in least):
            yield f"{name} must be a number of seconds {least}, not {value!r}"


def _chain(error: BaseException) -> list[BaseException]:
    # HTTP libraries wrap the socket's error, some in ``args``, some as the cause.
    found: list[BaseException] = []
    waiting: list[Any] = [error]
    while waiting and len(found) < 16:
        one = waiting.pop()
        if isinstance(one, BaseException) and one not in found:
            found.append(one)
            waiting += [one.__cause__, getattr(one, "reason", None), *one.args]
    return found


@dataclasses.dataclass(frozen=True, slots=True)
class Applied:
    """A look-up's answer: it happened, and this is what the call would have returned."""

    answer: Any = None


@dataclasses.dataclass(frozen=True, slots=True)
class NotApplied:
    """A look-up's answer: the provider knows nothing of it."""


@dataclasses.dataclass(frozen=True, slots=True)
class StillUnknown:
    """A look-up's answer: the provider can't tell yet."""


Finding = Applied | NotApplied | StillUnknown
