"""Runs what waits, in this process, through the same release, claim and end as in production."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Iterator
from typing import Any

from celery import Celery

from celery_guard.jobs.models import Job
from celery_guard.jobs.release import release
from celery_guard.jobs.sending import Sending, unsend
from celery_guard.jobs.states import TERMINAL, State
from celery_guard.relay import lead as leads
from celery_guard.relay import plain
from celery_guard.relay.broker_app import ledgers, load_app
from celery_guard.settle.moves import look_again
from celery_guard.testing.clock import skip_to_next
from celery_guard.testing.delivering import deliver, results_in_memory

LEAD = 60.0
"""Seconds for which a drain leads the lanes, so that no relay takes them meanwhile."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """One attempt: the job as it was after it, and what Celery was told if not success."""

    job: Job
    told: BaseException | None


class Drained(list[Ran]):
    """The attempts of one :func:`drain`, in order."""

    @property
    def succeeded(self) -> list[Job]:
        """Jobs that had succeeded after their attempt."""
        return [ran.job for ran in self if ran.job.state == State.SUCCEEDED]

    @property
    def failed(self) -> list[Job]:
        """Jobs that had ended in any other way."""
        ends = {*TERMINAL} - {State.SUCCEEDED}
        return [ran.job for ran in self if ran.job.state in ends]


def drain(
    *, using: str | None = None, later: bool = False, propagate: bool = False, limit: int = 1000
) -> Drained:
    """Run the jobs that are due, and those that they enqueue, until nothing is due.

    Each is released, claimed, run and ended as in a worker, in this process; no broker and no
    result backend is spoken to. Jobs of a transaction or savepoint that was rolled back do not
    run.

    :param using: only the ledger on this database; None: all that the site's tasks use.
    :param later: also run what is not due yet (a countdown, a retry, a look-up), in order, by
        letting time pass for the rows.
    :param propagate: raise what the first attempt without success told Celery.
    :param limit: most attempts.
    :raises RuntimeError: when that limit is reached: something is tried for ever; also when
        something waits and never runs, however much time passes.
    """
    app = load_app()
    drained = Drained()
    with results_in_memory(app):
        for alias in [using] if using else ledgers(app):
            for ran in _run_all(alias, app, later=later):
                drained.append(ran)
                if propagate and ran.told is not None:
                    raise ran.told
                if len(drained) >= limit:
                    raise RuntimeError(f"{limit} attempts, and {ran.job} still is not the last")
    return drained


SKIPS = 1000
"""Most times in a row that time passes without a job that runs."""


def _run_all(using: str, app: Celery, *, later: bool) -> Iterator[Ran]:
    idle = 0
    while idle <= SKIPS:
        ran_one = False
        for ran in _run_due(using, app):
            ran_one = True
            yield ran
        # What the reconciler would do: jobs whose effects are settled, or due for a look, go on.
        freed = look_again(using, leads.find_lanes(using), limit=100)
        if not (ran_one or freed or (later and skip_to_next(using))):
            return
        idle = 0 if ran_one else idle + 1
    raise RuntimeError(f"time passed {SKIPS} times, and nothing that waits came to run")


def _run_due(using: str, app: Celery) -> Iterator[Ran]:
    owner = uuid.uuid4()
    lanes = leads.find_lanes(using)
    led = leads.take(using, owner, lanes, LEAD)
    released: list[Sending] = []
    try:
        for lead in led.values():
            released += release(using, lead, 500, None)
        while released:
            yield from _run(using, app, released.pop(0))
    finally:
        # What did not get its turn, since somebody stopped listening, waits again.
        unsend(using, released)
        leads.resign(using, owner)


def _run(using: str, app: Celery, sending: Sending) -> Iterator[Ran]:
    if sending.sent_at is None and not sending.awaited:
        return
    told: Any = deliver(app, sending)
    if sending.plain:
        plain.forget(using, [sending])
    elif (job := Job.objects.using(using).filter(pk=sending.id).first()) is not None:
        yield Ran(job=job, told=told if isinstance(told, BaseException) else None)
