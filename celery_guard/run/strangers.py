"""Messages that this worker can't run: an unknown task, a body it can't read.

Their jobs end ``failed`` and can be replayed by a release that knows them. Nothing is dropped.
"""

from __future__ import annotations

import logging
from typing import Any

from celery.signals import task_rejected, task_unknown
from django.db import Error as DatabaseFault

from celery_guard.conf import guard_settings
from celery_guard.events import emit
from celery_guard.jobs import standing
from celery_guard.jobs.named import JOB_HEADER, NamedJob, named_in
from celery_guard.jobs.states import Reason, State
from celery_guard.relay.broker_app import ledgers, load_app
from celery_guard.run.bounded import bounded
from celery_guard.run.failure import failure_of


@task_unknown.connect(weak=False, dispatch_uid="celery_guard.run.strangers")
def park_unknown(message: Any = None, exc: BaseException | None = None, **_: object) -> None:
    """A message names a task that is not registered here."""
    _park(message, exc, Reason.UNKNOWN_TASK)


@task_rejected.connect(weak=False, dispatch_uid="celery_guard.run.strangers")
def park_unreadable(message: Any = None, exc: BaseException | None = None, **_: object) -> None:
    """A message can't be decoded, or is no task message."""
    _park(message, exc, Reason.UNDECODABLE)


def _park(message: Any, exc: BaseException | None, reason: Reason) -> None:
    job = named_in((getattr(message, "headers", None) or {}).get(JOB_HEADER))
    if job is None:
        return
    error = failure_of(exc or LookupError("no task")).stored(State.FAILED, reason)
    for using in _where(job):
        try:
            with bounded(using):
                parked = standing.park(using, job, reason=reason, error=error)
        except DatabaseFault as fault:
            # The job still waits as sent, and comes again.
            emit("run.main_unrecorded", logging.ERROR, job=job.id, why=str(fault))
            continue
        if parked:
            emit("run.parked", logging.ERROR, job=job.id, reason=reason)
            return


def _where(job: NamedJob) -> list[str]:
    # The task that would name its ledger's database is the one that is not known. A number alone
    # may be that of another job elsewhere.
    return ledgers(load_app()) if job.public_id else [guard_settings().using]
