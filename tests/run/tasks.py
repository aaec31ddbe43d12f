"""Guarded tasks that do what only these tests want."""

import os
import signal
import sys
import time
from datetime import UTC, datetime, timedelta
from typing import Any

from celery import shared_task, signature
from celery.exceptions import Ignore, Reject
from django.contrib.auth.models import Permission
from django.db import DatabaseError, connection, transaction

from celery_guard import UNKEYED, Permanent, RetryAfter, coalesce, current_job, guarded_task
from celery_guard.errors import Throttled
from tests.project.shop.models import Invoice, Mark
from tests.project.shop.witness import leave_trace, traces, wait_until_open
from tests.run.sessions import end_session, session


@guarded_task(key=UNKEYED)
def echo(value: Any) -> Any:
    """Returns its argument."""
    leave_trace("echo")
    return value


@guarded_task(key=UNKEYED)
def unencodable(name: str) -> Any:
    """Writes, then returns what no JSON can hold."""
    Mark.objects.create(name=name)
    return object()


@guarded_task(key="in-body:{name}")
def in_body(name: str) -> None:
    """Writes, then lets the test act in the middle of the body."""
    leave_trace(name)
    Mark.objects.create(name=name)
    ACTIONS.pop(name)()


@guarded_task(key="in-steps:{name}", atomic=False, transient=(ConnectionError,))
def in_steps(name: str, result: Any = None, returned: Any = None) -> Any:
    """The same for a body that finishes by itself, before the finish, in it and after it."""
    job = current_job()
    leave_trace(name)
    ACTIONS.pop(f"{name}.before", _nothing)()
    with job.finish(result=result):
        Mark.objects.create(name=name)
        ACTIONS.pop(f"{name}.within", _nothing)()
    ACTIONS.pop(f"{name}.after", _nothing)()
    return returned


@guarded_task(key="in-chunks:{name}", atomic=False)
def in_chunks(name: str, chunks: int) -> None:
    """Commits a mark for each chunk, with a checkpoint after each."""
    for number in range(chunks):
        Mark.objects.create(name=f"{name}.{number}")
        ACTIONS.pop(f"{name}.{number}", _nothing)()
        current_job().checkpoint()


@guarded_task(key="unless-stopped:{name}", atomic=False, autoretry_for=(Exception,))
def again_unless_stopped(name: str) -> None:
    """Would be tried again after any exception."""
    ACTIONS.pop(name)()
    current_job().checkpoint()


@guarded_task(key="unfinished:{name}", atomic=False)
def unfinished(name: str) -> str:
    """A body in autocommit that never calls finish()."""
    leave_trace(name)
    return name


ACTIONS: dict[str, Any] = {}
"""What the test wants to happen inside a body, by name."""


def _nothing() -> None:
    pass


@guarded_task(bind=True, key="again:{name}", autoretry_for=(Exception,))
def again_with(self: Any, name: str, value: int) -> int:
    """Asks for a retry with other arguments, beside a broad autoretry_for."""
    leave_trace(name, str(value))
    Mark.objects.create(name=name)
    if value < 2:
        raise self.retry(args=(name, value + 1), countdown=0)
    return value


@guarded_task(bind=True, key="asks:{name}", max_retries=2)
def asks(self: Any, name: str, options: dict[str, Any], times: int = 1) -> str:
    """Asks for a retry `times` times, with the options given."""
    leave_trace(name, str(self.request.retries))
    if len(traces(name)) <= times:
        if "eta" in options:
            options["eta"] = datetime.now(UTC) + timedelta(seconds=options["eta"])
        self.retry(**options)
    return "done"


@guarded_task(bind=True, key="asks-quietly:{name}")
def asks_quietly(self: Any, name: str) -> str:
    """Asks for a retry without being interrupted, once; keeps what it wrote."""
    leave_trace(name)
    Mark.objects.create(name=name)
    if len(traces(name)) == 1:
        self.retry(throw=False, countdown=0)
    return "done"


@guarded_task(key="auto:{name}", autoretry_for=(LookupError,), retry_backoff=3, retry_jitter=False)
def auto(name: str, times: int) -> None:
    """Celery's own automatic retry."""
    leave_trace(name)
    if len(traces(name)) <= times:
        raise KeyError(name)


@guarded_task(key="auto-any:{name}", atomic=False, autoretry_for=(Exception,))
def auto_any(name: str, error: str) -> None:
    """Celery's own automatic retry of everything, around one of our verdicts."""
    if error == "UnknownOutcome":
        current_job().effect("charge", call=_no_answer)
    given = {"RetryAfter": RetryAfter(30), "Throttled": Throttled(30), "Permanent": Permanent("no")}
    raise given[error]


def _no_answer(sending: Any) -> None:
    raise TimeoutError("no answer")


@guarded_task(key="limited:{name}", transient=(ConnectionError,), failures=2)
def limited(name: str) -> None:
    """Fails in passing, always; its budget is two."""
    leave_trace(name)
    raise ConnectionError(name)


@guarded_task(bind=True, key="ends:{name}")
def ends(self: Any, name: str, how: str) -> None:
    """Ends in one of Celery's special ways."""
    leave_trace(name)
    Mark.objects.create(name=name)
    match how:
        case "ignore":
            raise Ignore
        case "reject":
            raise Reject("no", requeue=False)
        case "requeue":
            raise Reject("later", requeue=True)
        case "exit":
            sys.exit(3)


@guarded_task(bind=True, key="replaced:{name}")
def replaced(self: Any, name: str, by: dict[str, Any]) -> None:
    """Gives its place to another task."""
    leave_trace(name)
    Mark.objects.create(name=name)
    raise self.replace(signature(by))


@guarded_task(key="throttled:{name}", failures=1)
def throttled(name: str) -> None:
    """Is asked to wait, always; one failure would be its death."""
    leave_trace(name)
    raise RetryAfter(0)


@guarded_task(key="breaks:{name}", atomic=True)
def breaks(name: str, how: str) -> None:
    """Spoils its transaction or its connection in one of many ways."""
    leave_trace(name)
    Mark.objects.create(name=name)
    match how:
        case "integrity":
            Permission.objects.create(name=name, content_type_id=1 << 30, codename=name)
            connection.check_constraints()
        case "at commit":
            Permission.objects.create(name=name, content_type_id=1 << 30, codename=name)
        case "aborted":
            _fail_quietly()
        case "killed":
            end_session(session())
        case "closed":
            connection.close()
        case "left open":
            transaction.atomic().__enter__()


@guarded_task(key="breaks-steps:{name}", atomic=False)
def breaks_steps(name: str, how: str) -> None:
    """The same in a body that runs in autocommit."""
    leave_trace(name)
    match how:
        case "left open":
            transaction.atomic().__enter__()
            Mark.objects.create(name=name)
        case "autocommit off":
            transaction.set_autocommit(False)
            Mark.objects.create(name=name)
        case "killed":
            end_session(session())


def _fail_quietly() -> None:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT no_such_column FROM shop_mark")
    except DatabaseError:
        return


@guarded_task(key="sleeps:{name}", soft_time_limit=1, time_limit=20)
def sleeps_softly(name: str) -> None:
    """Runs over its soft limit."""
    leave_trace(name)
    Mark.objects.create(name=name)
    time.sleep(15)


@guarded_task(key="hangs:{name}", time_limit=1)
def hangs(name: str) -> None:
    """Runs over its hard limit, deaf to signals."""
    leave_trace(name)
    Mark.objects.create(name=name)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(15)


@guarded_task(key="long:{name}", lease=0.6)
def long(name: str) -> None:
    """Runs ten times as long as its lease unless the gate opens."""
    leave_trace(name, str(os.getpid()))
    Mark.objects.create(name=name)
    wait_until_open(name)


@guarded_task(bind=True, key="member:{name}", lease=600)
def first_killed(self: Any, name: str) -> str:
    """Kills its process the first time, returns its name the second; its lease is no help."""
    leave_trace(name)
    Mark.objects.create(name=name)
    if len(traces(name)) == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return name


@guarded_task(key=UNKEYED)
def collect(names: list[str]) -> list[str]:
    """The body of a chord."""
    leave_trace("collect", ",".join(sorted(names)))
    return sorted(names)


@shared_task
def told_of_error(*args: Any) -> None:
    """An unguarded errback."""
    leave_trace("errback")


@shared_task(name="tests.run.tasks.follow")
def follow(value: Any = None, note: str = "follow") -> Any:
    """An unguarded next step."""
    leave_trace(note, str(value))
    return value


@guarded_task(key=UNKEYED)
def backend_pid() -> None:
    """Notes which session it ran in."""
    leave_trace("guarded-pid", str(session()))


@shared_task
def plain_backend_pid() -> None:
    """The same, unguarded."""
    leave_trace("plain-pid", str(session()))


@guarded_task(key="elsewhere:{name}", using="other", transient=(ConnectionError,))
def on_other(name: str, failures: int = 0) -> str:
    """Data and ledger of this task live in the second database."""
    leave_trace(name)
    Mark.objects.using("other").create(name=name)
    if len(traces(name)) <= failures:
        raise ConnectionError(name)
    return name


@guarded_task(lane="high")
@coalesce("refresh:{key}")
def refresh(key: str, asked_by: str = "") -> int:
    """Reads the latest state of a thing that many update; says when it begins and ends."""
    leave_trace(f"refresh-{key}", f"begin {os.getpid()} {asked_by}")
    seen = Mark.objects.filter(name=f"update-{key}").count()
    leave_trace(f"refreshed-{key}", str(seen))
    wait_until_open(f"refresh-{key}")
    leave_trace(f"refresh-{key}", f"end {seen}")
    return seen


SELDOM = 4.0


@guarded_task(lane="high")
@coalesce("seldom:{key}", every=SELDOM)
def refresh_seldom(key: str, asked_by: str = "") -> int:
    """The same, at most once in ``SELDOM`` seconds."""
    leave_trace(f"refresh-{key}", f"begin {os.getpid()} {asked_by}")
    seen = Mark.objects.filter(name=f"update-{key}").count()
    leave_trace(f"refresh-{key}", f"end {seen}")
    return seen


@guarded_task(key="invoice-once:{order}", lane="high", comparable=True)
def invoice_once(order: int) -> dict[str, Any]:
    """Each run that counts leaves one invoice; its answer differs where a test plants that."""
    Invoice.objects.create(order_id=order)
    state = "lost" if os.environ.get("GUARD_TEST_OTHER_RESULT") else "issued"
    return {"order": order, "state": state}
