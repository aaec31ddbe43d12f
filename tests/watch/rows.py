"""Jobs in every place of the ledger, as the other rooms leave them."""

from __future__ import annotations

import json
import uuid
from datetime import timedelta

from django.utils import timezone

from celery_guard.jobs.states import State
from celery_guard.models import Job
from tests.factories import make_job


def sent(lane: str = "high", *, ago: float = 0.0, **changes: object) -> Job:
    """A job whose message is with the broker since ``ago`` seconds."""
    when = timezone.now() - timedelta(seconds=ago)
    return make_job(lane, **{"sent_at": when, "sends": 1, **changes})


def running(lane: str = "high", *, ago: float = 0.0, **changes: object) -> Job:
    """A job that an attempt holds; it was sent ``ago`` seconds before now."""
    now = timezone.now()
    held = {"state": State.RUNNING, "owner": uuid.uuid4(), "fence": 1, "starts": 1}
    return sent(lane, ago=ago, **{**held, "started_at": now, "lease_until": now, **changes})


def ended(lane: str = "high", state: State = State.SUCCEEDED, **changes: object) -> Job:
    """A job that has ended."""
    now = timezone.now()
    error = None
    if state in (State.FAILED, State.DEAD):
        what = {"type": "Boom", "message": "it broke", "state": state, "reason": "budget"}
        error = json.dumps(what)
    over = {"state": state, "due_at": None, "finished_at": now, "starts": 1, "error": error}
    return make_job(lane, **{**over, **changes})


def retrying(lane: str = "high", *, due_in: float = 60.0, **changes: object) -> Job:
    """A job that failed once and waits for its next attempt."""
    first = timezone.now() - timedelta(seconds=100)
    again = {"reason": "retry", "starts": 1, "failures": 1, "first_due_at": first}
    return make_job(lane, due_in=due_in, **{**again, **changes})


def aged(lane: str = "high", *, seconds: float, **changes: object) -> Job:
    """A job that has been due for ``seconds``."""
    due = timezone.now() - timedelta(seconds=seconds)
    return make_job(lane, **{"created_at": due, "first_due_at": due, "due_at": due, **changes})
