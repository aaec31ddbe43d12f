"""One small job through each lane, the whole way: the only proof that jobs start."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

from django.db import transaction

from celery_guard.conf import Lane, guard_settings
from celery_guard.enqueue.handle import JobHandle, result_of
from celery_guard.jobs import adding
from celery_guard.jobs.models import Job
from celery_guard.jobs.states import State
from celery_guard.tasks import canary
from celery_guard.watch.doctor.database import SKEW_MOST
from celery_guard.watch.doctor.finding import Finding, fault, ok, warning

POLL = 0.05


def send_canaries(patience: float) -> Iterator[Finding]:
    """Send one canary through every lane and say how long it took from commit to start.

    :param patience: seconds to wait for all of them; what has not started by then is cancelled.
    """
    lanes = guard_settings().lanes
    using = canary.guard.alias
    with transaction.atomic(using=using):
        sent = {name: canary.apply_async(queue=lane.queue) for name, lane in lanes.items()}
    jobs = _await(using, sent, patience)
    for name, lane in lanes.items():
        yield _judge(lane, jobs.get(name), patience)
    adding.cancel(using, *(job.pk for job in jobs.values() if job.state == State.WAITING))


def _await(using: str, sent: Mapping[str, JobHandle], patience: float) -> dict[str, Job]:
    names = {handle.public_id: name for name, handle in sent.items()}
    until = time.monotonic() + patience
    while True:
        rows = Job.objects.using(using).filter(public_id__in=names)
        found = {names[row.public_id]: row for row in rows}
        if all(row.finished_at for row in found.values()) or time.monotonic() > until:
            return found
        time.sleep(POLL)


def _judge(lane: Lane, job: Job | None, patience: float) -> Finding:
    what = f"canary {lane.name}"
    if job is None or job.started_at is None:
        return fault(
            what,
            f"it did not start within {patience:g} s",
            "See the lane's other findings; with none, its workers are busy for longer than that.",
        )
    if job.state != State.SUCCEEDED:
        return fault(what, f"it started and is {job.state}", "Look at the job in the admin.")
    waited = (job.started_at - job.created_at).total_seconds()
    if waited > lane.objective:
        says = f"it waited {waited:.1f} s, the lane's objective is {lane.objective:g} s"
        return warning(what, says, "More workers for this lane, or fewer jobs in it.")
    skew = float(result_of(job)) - job.started_at.timestamp()
    if abs(skew) > SKEW_MOST:
        says = f"its worker's clock is {skew:+.1f} s off the database's"
        return warning(what, says, "Run a time service on the workers' machines.")
    return ok(what, f"started {1000 * waited:.0f} ms after its commit")
