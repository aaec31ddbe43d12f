"""The end of a good attempt: next steps and the fenced move, in the body's transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from celery_guard.errors import LeaseLost
from celery_guard.faults import fault_point
from celery_guard.jobs import idling, running, standing
from celery_guard.run import next_steps
from celery_guard.run.hooks import Hooks
from celery_guard.run.outcome import SILENT, Retry, Succeeded
from celery_guard.run.record import record
from celery_guard.run.retry_budget import within_budget

if TYPE_CHECKING:
    from celery_guard.run.job import CurrentJob


def close_out(job: CurrentJob, outcome: Succeeded | Retry) -> Succeeded | Retry:
    """Hand on what follows and end the attempt, in the open transaction; return how it ended.

    A plain success may be committed on return: nothing more is to be written in that transaction.

    :raises LeaseLost: when the job is no longer held here; the transaction must roll back.
    """
    if isinstance(outcome, Retry):
        outcome = within_budget(job, outcome)
    fault_point("run.handing_on", job.id)
    # From here on an exception no longer tells whether the commit happened.
    job.finishing = outcome
    if isinstance(outcome, Succeeded):
        next_steps.hand_on(job, outcome)
    silent = isinstance(outcome, Succeeded) and outcome.reason in SILENT
    commit = not silent and isinstance(outcome, Succeeded) and running.commits_at_once(job.hold)
    if not commit:
        # From the end that is written to its commit the job is locked.
        idling.end_when_idle(job.using, job.lease)
    if commit:
        fault_point("run.finishing", job.id)
    earlier, job.hooks = job.hooks, Hooks(job.using)
    if not record(job, outcome, commit=commit):
        # Perhaps because a finish() was committed, and its body did not let the exception through.
        job.hooks = earlier
        raise LeaseLost
    if silent:
        # Nobody will be told anything under this task id, so nothing is owed.
        standing.answered(job.using, job.id, job.fence)
    if not commit:
        fault_point("run.finishing", job.id)
    return outcome
