"""Guarded tasks for the tests: well-behaved ones, and ones that wait, fail and die on demand."""

import os
import signal
import time

from celery import shared_task

from celery_guard import UNKEYED, Permanent, RetryAfter, Transient, current_job, guarded_task
from tests.project.shop.models import Invoice, Mark, Payment
from tests.project.shop.witness import leave_trace, traces, wait_until_open


@shared_task
def plain(name: str) -> str:
    """An ordinary Celery task, unguarded."""
    leave_trace(name, "plain")
    return name


@guarded_task(key="invoice:{order_id}", lane="high")
def issue_invoice(order_id: int) -> int:
    """One business write in the job's transaction."""
    leave_trace(f"invoice-{order_id}", "body")
    return Invoice.objects.create(order_id=order_id).pk


@guarded_task(key="charge:{order_id}", lane="high", atomic=False)
def charge(order_id: int) -> str:
    """An effect outside, then business writes with the finish."""
    job = current_job()
    assert job is not None, "charge is not called as a function"
    reference = job.provider_key("charge")
    leave_trace(f"charge-{order_id}", reference)
    with job.finish():
        Payment.objects.create(order_id=order_id, reference=reference)
    return reference


@guarded_task(key="mark:{name}")
def mark(name: str, value: str = "") -> str:
    """Writes one row and returns its argument."""
    leave_trace(name, value)
    Mark.objects.create(name=name, value=value)
    return value


@guarded_task(key="rented:{name}", lane="high", tenant="{shop}")
def mark_for(shop: str, name: str) -> None:
    """The same for a tenant, in some time."""
    time.sleep(0.02)
    Mark.objects.create(name=name, value=shop)


@guarded_task(key="asking:{name}", lane="low")
def ask_within(name: str) -> None:
    """Asks for other work while it runs."""
    mark.delay(name, "asked for by a task")


@guarded_task(key="low:{name}", lane="low")
def mark_low(name: str) -> None:
    """The same in the low lane."""
    leave_trace(name)
    Mark.objects.create(name=name)


@guarded_task(key=UNKEYED)
def add(x: int, y: int) -> int:
    """No key: every call is a job."""
    return x + y


@guarded_task(key=UNKEYED)
def total(numbers: list[int]) -> int:
    """The body of a chord."""
    return sum(numbers)


@guarded_task(key="hold:{name}")
def hold(name: str) -> None:
    """Says that it began, then waits inside its transaction until the test opens the gate."""
    leave_trace(name, str(os.getpid()))
    Mark.objects.create(name=name)
    wait_until_open(name)


@guarded_task(key="hold-open:{name}", atomic=False)
def hold_open(name: str) -> None:
    """The same without a transaction around the body."""
    leave_trace(name, str(os.getpid()))
    job = current_job()
    assert job is not None, "hold_open is not called as a function"
    wait_until_open(name)
    with job.finish():
        Mark.objects.create(name=name)


@guarded_task(key="flaky:{name}", transient=(ConnectionError,))
def flaky(name: str, failures: int) -> int:
    """Fails with a transient error `failures` times, then succeeds; rolled-back rows must not stay."""
    leave_trace(name)
    Mark.objects.create(name=name)
    tries = len(traces(name))
    if tries <= failures:
        raise ConnectionError(f"try {tries} of {name}")
    return tries


@guarded_task(key="verdict:{name}", permanent=(LookupError,))
def verdict(name: str, how: str) -> None:
    """Ends the way it is told to."""
    leave_trace(name)
    Mark.objects.create(name=name)
    match how:
        case "permanent":
            raise Permanent(name)
        case "declared":
            raise LookupError(name)
        case "transient":
            raise Transient(name)
        case "bug":
            raise ZeroDivisionError(name)


@guarded_task(key="throttled:{name}")
def throttled(name: str, times: int, seconds: float = 0.1) -> None:
    """Is asked to come back later `times` times."""
    leave_trace(name)
    if len(traces(name)) <= times:
        raise RetryAfter(seconds)
    Mark.objects.create(name=name)


@guarded_task(key="dies:{name}")
def dies(name: str, times: int) -> None:
    """Kills its own process in the middle of the body `times` times."""
    leave_trace(name, str(os.getpid()))
    Mark.objects.create(name=name)
    if len(traces(name)) <= times:
        os.kill(os.getpid(), signal.SIGKILL)
