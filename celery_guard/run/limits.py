"""The limits of a task's dependency around its body, and of others inside it.

A permit is taken before the body's transaction is opened and given back after its commit. A
refusal is an exception like any other that the attempt's end is made from: the job waits until its
place comes, nothing is used up, and the worker takes the next job.
"""

from __future__ import annotations

import contextlib
import dataclasses
import random
import time
import uuid
from collections.abc import Iterator
from datetime import datetime

from celery_guard.conf import guard_settings
from celery_guard.errors import RetryAfter, Throttled
from celery_guard.relay.limits import store
from celery_guard.relay.limits.answers import Ask, Granted, Refused, Verdict
from celery_guard.relay.limits.rules import MICRO, Rules, check_cost, rules_of
from celery_guard.run.classify import blame
from celery_guard.run.current import running_job
from celery_guard.run.job import CurrentJob, Permit

HORIZON = 600.0
"""Seconds ahead of which no place is kept: whoever is further back asks again on the way."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """One wish to call: in whose name, at what cost, and how long it waits in place."""

    rules: Rules
    permit: Permit
    place: str
    cost: int
    lease: float
    patience: float
    within: float


@contextlib.contextmanager
def within_limits(job: CurrentJob) -> Iterator[None]:
    """Run an attempt's body within the limits of its task's dependency.

    :raises Throttled: when its time has not come; the body has not begun.
    """
    rules = rules_of(job.task.guard.dependency)
    visit = Visit(
        rules=rules,
        permit=Permit(rules=rules, name=f"{job.public_id.hex}/{job.fence}"),
        place=job.place,
        cost=1,
        lease=job.lease,
        patience=0.0,
        within=_horizon(job),
    )
    with _permitted(job, visit):
        yield


@contextlib.contextmanager
def dependency(name: str, *, cost: int = 1, wait: float = 1.0) -> Iterator[None]:
    """Call another system within its limits: ``with dependency("mail", cost=2): send()``.

    What the block raises is judged as a task's own exceptions are: ``RetryAfter`` pauses the
    dependency for everybody, transient errors count towards its breaker.

    :param name: one of the setting ``dependencies``.
    :param cost: how many tokens of each of its rates the block uses, at most its burst.
    :param wait: seconds to wait in place at most; while that lasts, a worker is held up.
    :raises RetryAfter: when its time comes later than that. Let it through: the job waits until
        then and nothing is used up. In a job the place is kept for the next attempt.
    :raises GuardError: when there is no such dependency, or the cost can never be paid.
    """
    rules = rules_of(name)
    check_cost(rules, cost)
    job = running_job()
    mine = uuid.uuid4().hex
    visit = Visit(
        rules=rules,
        permit=Permit(rules=rules, name=mine),
        place=mine if job is None else f"{job.place}/in",
        cost=cost,
        lease=guard_settings().run.lease if job is None else job.lease,
        patience=max(0.0, wait),
        # Nobody would come back for it.
        within=max(0.0, wait) if job is None else _horizon(job),
    )
    with _permitted(job, visit):
        yield


def _horizon(job: CurrentJob) -> float:
    # Past its expiry the job does not come back, and the place would be nobody's.
    return min(HORIZON, job.claim.time_left)


@contextlib.contextmanager
def _permitted(job: CurrentJob | None, visit: Visit) -> Iterator[None]:
    _wait_for(visit)
    if job is not None:
        job.permits.add(visit.permit)
    verdict, asked = Verdict.UNCLEAR, _Pause()
    try:
        yield
        verdict = Verdict.FINE if job is None else _of_returning(job)
    except BaseException as error:
        if job is None or error is not job.blamed:
            verdict, asked = blame(job, error), _pause_in(error)
        if job is not None:
            job.blamed = error
        raise
    finally:
        if job is not None:
            # First: a heartbeat that comes between must not write it anew.
            job.permits.discard(visit.permit)
        # The rules of now: those of the beginning would turn back what was changed meanwhile.
        rules, permit = rules_of(visit.rules.name), visit.permit.name
        store.finish(rules, permit, verdict, asked.seconds, asked.until)


def _wait_for(visit: Visit) -> None:
    until = time.monotonic() + visit.patience
    ask = Ask(
        place=visit.place,
        permit=visit.permit.name,
        cost=visit.cost,
        lease=int(visit.lease * MICRO),
        within=int(visit.within * MICRO),
    )
    while not isinstance(answer := store.take(visit.rules, ask), Granted):
        seconds = answer.wait / MICRO
        if not answer.kept or time.monotonic() + seconds > until:
            raise _refusal(visit.rules.name, answer)
        time.sleep(seconds)


def _refusal(name: str, answer: Refused) -> Throttled:
    seconds = answer.wait / MICRO
    if not answer.kept:
        # Without places of their own they must not all come back at one moment.
        seconds = random.uniform(0.5, 1.0) * min(seconds, HORIZON)
    why = "is left alone" if answer.reason == "breaker" else "is at its limit"
    return Throttled(seconds, f"{name} {why} for {seconds:.3f} s", answer.reason)


def _of_returning(job: CurrentJob) -> Verdict:
    asked = job.asked
    return Verdict.FINE if asked is None else blame(job, asked.tell)


@dataclasses.dataclass(frozen=True, slots=True)
class _Pause:
    seconds: float = 0.0
    until: datetime | None = None


def _pause_in(error: BaseException) -> _Pause:
    return _Pause(error.seconds, error.until) if isinstance(error, RetryAfter) else _Pause()
