"""Tasks that the site may run itself while the broker is away."""

from __future__ import annotations

import uuid
from typing import Any

from celery import shared_task

from celery_guard import Transient, current_job, guarded_task
from celery_guard.jobs.clock import in_seconds
from celery_guard.models import LaneLead
from celery_guard.relay import lead as leads
from tests.project.shop.models import Mark
from tests.project.shop.witness import leave_trace, wait_until_open

FAR = 3600.0


@guarded_task(key="served:{name}", lane="high", fallback=True)
def served(name: str) -> str:
    """Leaves a mark and says so; waits for its gate where its name begins with "slow"."""
    leave_trace("served", name)
    Mark.objects.create(name=name)
    if name.startswith("slow"):
        wait_until_open(name)
    return f"{name} is served"


@guarded_task(key="served-badly:{name}", lane="high", fallback=True)
def served_badly(name: str, error: str) -> None:
    """Writes, and ends without success."""
    Mark.objects.create(name=name)
    if error == "exit":
        raise SystemExit(3)
    raise Transient(name) if error == "transient" else RuntimeError(name)


@guarded_task(key="served-in-steps:{name}", lane="high", fallback=True, atomic=False)
def served_in_steps(name: str) -> str:
    """An effect, and business writes with the finish."""
    job = current_job()
    answer = job.effect("call", lambda sending: {"key": sending.key})
    leave_trace("called", name)
    with job.finish():
        Mark.objects.create(name=name)
    return str(answer.key)


@guarded_task(key="asks-on:{name}", lane="high", fallback=True, atomic=False)
def asks_on(name: str) -> None:
    """Asks for more of the same, which is owed work then."""
    served.submit(name)


@guarded_task(key="not-served:{name}", lane="high")
def not_served(name: str) -> str:
    """Says nothing of the fallback."""
    return name


@guarded_task(key="low-served:{name}", lane="low", fallback=True)
def low_served(name: str) -> str:
    """Says so, in a lane that may not."""
    return name


@shared_task(name="tests.run.served.after")
def after(value: Any) -> None:
    """A next step."""
    leave_trace("after", str(value))


def broker_is_away(lane: str = "high", *, failing: float = FAR, lead: float = FAR) -> LaneLead:
    """A relay leads ``lane`` for ``lead`` seconds more, and says so since ``failing`` seconds."""
    leads.take("default", uuid.uuid4(), [lane], 60.0)
    rows = LaneLead.objects.filter(lane=lane)
    rows.update(failing_since=in_seconds(-failing), lead_until=in_seconds(lead))
    return rows.get()
