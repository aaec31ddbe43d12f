"""Tasks that are given a secret, and that fail and die with it in their hands."""

import hashlib
import os
import signal
from collections.abc import Sequence
from typing import Any

from celery.exceptions import Retry

from celery_guard import coalesce, current_job, guarded_task
from tests.project.shop.models import Mark
from tests.project.shop.witness import leave_trace, traces

HIDDEN = {"argsrepr": "<hidden>", "kwargsrepr": "<hidden>"}
"""Celery's own way to hide arguments wherever it shows them."""

STATUS = {"owner": "tests.flows.confiding.is_anybodys"}


def is_anybodys(request: object, job: object) -> bool:
    """Every job's status is for everybody."""
    return True


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


@guarded_task(
    bind=True,
    key="kept:{name}",
    lane="high",
    sensitive=("secret",),
    transient=(ConnectionError,),
    comparable=True,
    fallback=True,
)
def keep(self: Any, name: str, secret: str, ways: Sequence[str] = ()) -> dict[str, int]:
    """Says itself that its secret is one, and goes the `ways`, all of which quote it."""
    begun = len(traces(name))
    leave_trace(name, mark_of(secret))
    way = ways[begun] if begun < len(ways) else ""
    fail_by(way, secret)
    if way == "again":
        raise self.retry(exc=ConnectionError(f"no route for {secret}"), countdown=0)
    if way == "quietly":
        self.retry(exc=ConnectionError(f"no route for {secret}"), countdown=0, throw=False)
    if way == "others":
        raise self.retry((name, secret, ways), exc=ConnectionError(secret), countdown=0)
    return {secret: begun} if way == "result" else {}


@guarded_task(bind=True, key="passed-on:{name}")
def pass_on(self: Any, name: str, secret: str) -> None:
    """Asks for another attempt, the first time, naming its arguments again."""
    leave_trace(name, mark_of(secret))
    if len(traces(name)) == 1:
        raise self.retry(args=(name, secret), countdown=0)


def fail_by(way: str, secret: str) -> None:
    """Raise what quotes the secret: itself, in a cause, by a file's name, or by the database."""
    match way:
        case "quote":
            raise ValueError(f"no such card: {secret}", {"card": secret})
        case "cause":
            try:
                raise KeyError(secret)
            except KeyError as error:
                raise LookupError("nobody there") from error
        case "file":
            raise FileNotFoundError(2, "No such file", f"/cards/{secret}")
        case "celery":
            raise Retry(exc=ConnectionError(secret), when=0)
        case "row":
            Mark.objects.create(name=secret, value=None)


@guarded_task(key="paid-by:{name}", atomic=False, sensitive=("secret",))
def pay(name: str, secret: str) -> None:
    """Its provider quotes the secret when it gives no answer."""

    def ask(sending: Any) -> Any:
        leave_trace(name, mark_of(secret))
        raise ConnectionError(f"/pay?card={secret} timed out")

    current_job().effect("charge", ask)


@guarded_task(key="looked-up:{name}", atomic=False, sensitive=("secret",), transient=(LookupError,))
def look_up(name: str, secret: str) -> None:
    """Its provider gives no answer, and quotes the secret where it is asked what became of the call."""

    def ask(sending: Any) -> Any:
        leave_trace(name, mark_of(secret))
        raise ConnectionError("timed out")

    def find(sending: Any) -> Any:
        leave_trace(f"{name}-looked", mark_of(secret))
        raise LookupError(f"/find?card={secret} is away")

    current_job().effect("charge", ask, find=find)
