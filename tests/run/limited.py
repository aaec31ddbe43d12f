"""Guarded tasks that call other systems, as far as their limits are concerned."""

import time

from celery_guard import UNKEYED, RetryAfter, Transient, coalesce, dependency, guarded_task
from tests.project.shop.models import Mark
from tests.project.shop.witness import leave_trace, wait_until_open


@guarded_task(key=UNKEYED, dependency="provider")
def calls(name: str) -> None:
    """Leaves the time of its call, on the clock that all processes of a machine share."""
    leave_trace(name, repr(time.monotonic()))


@guarded_task(
    key=UNKEYED, dependency="provider", transient=(ConnectionError,), permanent=(LookupError,)
)
def answers(name: str, how: str) -> None:
    """The other side answers the way it is told to."""
    leave_trace(name, how)
    match how:
        case "later":
            raise RetryAfter(30)
        case "down":
            raise ConnectionError(name)
        case "no":
            raise LookupError(name)
        case "bug":
            raise ZeroDivisionError(name)


@guarded_task(dependency="provider")
@coalesce("page:{name}")
def refreshes(name: str) -> None:
    """Only the latest state of a page matters."""
    leave_trace(name)


@guarded_task(key="desk:{name}", dependency="desk", atomic=False)
def at_the_desk(name: str) -> None:
    """Has the one permit for as long as the test wants."""
    leave_trace(name)
    wait_until_open(name)


@guarded_task(key="both:{name}", dependency="provider")
def calls_both(name: str) -> None:
    """The mail server fails inside a task that depends on another system."""
    leave_trace(name)
    with dependency("mail"):
        raise Transient("the mail server is away")


@guarded_task(key="mails:{name}")
def mails(name: str, how: str = "", wait: float = 0.0) -> None:
    """Writes, then sends one mail of two an hour."""
    Mark.objects.create(name=name)
    with dependency("mail", wait=wait):
        leave_trace(name)
        if how == "down":
            raise Transient("the mail server is away")
        if how == "later":
            raise RetryAfter(60)
    if how == "bug":
        raise ZeroDivisionError(name)
