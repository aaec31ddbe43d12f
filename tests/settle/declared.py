"""Effects that are declared once, and tasks that call them."""

from __future__ import annotations

from typing import Any

from django.db import transaction

from celery_guard import (
    Applied,
    NotApplied,
    Provider,
    StillUnknown,
    current_job,
    effect,
    guarded_task,
)
from celery_guard.settle.perform import Sending

calls: list[tuple[Sending, Any]] = []
behave: dict[str, Any] = {}
BANK = Provider(name="bank", recovery="reconcilable", timeout=0.5, settle_after=0)


def look_up(
    sending: Sending, order_id: int, amount: Any = 1
) -> Applied | NotApplied | StillUnknown:
    """What a test says that the bank knows."""
    found: Applied | NotApplied | StillUnknown = behave["found"](sending, order_id, amount)
    return found


@effect("charge", find=look_up, provider=BANK)
def charge(sending: Sending, order_id: int, amount: Any = 1) -> Any:
    """One per job."""
    calls.append((sending, (order_id, amount)))
    return behave["charge"]() if "charge" in behave else {"id": f"ch_{order_id}_{amount}"}


@effect("mail", item="{address}", provider=Provider(recovery="keyed", timeout=0.5))
def mail(sending: Sending, address: str, *, text: str = "") -> dict[str, str]:
    """One per address."""
    calls.append((sending, (address, text)))
    return {"to": address}


@effect("letter", item=lambda person, **_: person["id"], request=lambda person: person["id"])
def letter(sending: Sending, person: dict[str, Any]) -> str:
    """What is asked for is less than what is passed."""
    calls.append((sending, person["id"]))
    return "sent"


@guarded_task(key="declared:{name}", atomic=False, failures=50, transient=(ConnectionResetError,))
def in_steps(name: str, steps: list[Any]) -> list[Any]:
    """Each step is the name of an effect and its arguments."""
    answers = [KNOWN[step](*args) for step, *args in steps]
    with current_job().finish():
        pass
    return answers


@guarded_task(key="declared-atomic:{name}")
def at_once(name: str) -> None:
    """An effect where a rollback could not undo it."""
    charge(1)


@guarded_task(key="declared-transaction:{name}", atomic=False)
def in_a_transaction(name: str) -> None:
    """The same in a transaction that the body opened."""
    with transaction.atomic():
        charge(1)


@guarded_task(key="declared-finish:{name}", atomic=False)
def while_finishing(name: str) -> None:
    """The same among the business writes."""
    with current_job().finish():
        charge(1)


def person(number: int) -> str:
    """A letter to somebody of whom more is known in every attempt."""
    return letter({"id": str(number), "attempt": current_job().starts})


def fine(name: str) -> str:
    """A step that fails in the first attempt only."""
    if current_job().starts == 1:
        raise ConnectionResetError
    return name


KNOWN: dict[str, Any] = {"charge": charge, "mail": mail, "person": person, "fine": fine}
