"""Tasks that are given a secret, and that fail and die with it in their hands."""

import hashlib
import os
import signal
from collections.abc import Sequence
from typing import Any

from celery_guard import coalesce, guarded_task
from tests.project.shop.witness import leave_trace, traces

HIDDEN = {"argsrepr": "<hidden>", "kwargsrepr": "<hidden>"}
"""Celery's own way to hide arguments wherever it shows them."""


def mark_of(secret: str) -> str:
    """What a body leaves behind of the secret that it got."""
    return hashlib.sha256(secret.encode()).hexdigest()


@guarded_task(key="confided:{name}", transient=(ConnectionError,))
def confide(name: str, secret: str, ways: Sequence[str] = ()) -> None:
    """Go the `ways` first, one a start: retry, die, fail."""
    begun = len(traces(name))
    leave_trace(name, mark_of(secret))
    match ways[begun] if begun < len(ways) else "":
        case "retry":
            raise ConnectionError("no route")
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
        case "fail":
            raise LookupError("nobody there")


@guarded_task(key="gathered:{name}")
def gather(results: Any, name: str, secret: str) -> None:
    """The end of a chord."""
    leave_trace(name, mark_of(secret))


@guarded_task(lane="low")
@coalesce("told:{name}")
def tell_last(name: str, secret: str) -> None:
    """Only the last secret counts."""
    leave_trace(name, mark_of(secret))
