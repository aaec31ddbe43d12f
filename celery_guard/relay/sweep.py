"""Gathers the evidence of lost messages and writes it on the lanes' rows.

Whoever takes the duty measures every lane; each lane's leader then sends again what the evidence
covers, since it alone has the line to the broker and the right to release.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from datetime import datetime, timedelta

from django.db.models import Count, Max, Min, Q

from celery_guard.conf import guard_settings
from celery_guard.events import emit
from celery_guard.jobs.clock import DatabaseNow
from celery_guard.jobs.models import Job
from celery_guard.jobs.states import State
from celery_guard.relay import presence
from celery_guard.relay.broker_app import load_app
from celery_guard.relay.duties import duty
from celery_guard.relay.evidence import Evidence, Flight, judge
from celery_guard.relay.models import LaneLead
from celery_guard.relay.presence import Worker
from celery_guard.relay.publish.depth import ready_in

_FIELDS = ("probe_sent_at", "probe_at", "proven_sent_at", "idle_since")


@duty("sweep", every=lambda: guard_settings().sweep.every)
def sweep(using: str) -> None:
    """Bring the evidence of every lane up to date, and forget workers long silent."""
    rows = {row.lane: row for row in LaneLead.objects.using(using).annotate(now=DatabaseNow())}
    flights = flights_of(using, rows)
    doubtful = [lane for lane, flight in flights.items() if flight.waiting]
    queues = {lane: guard_settings().lane(lane).queue for lane in rows}
    ready = _ready([queues[lane] for lane in doubtful])
    workers = presence.live_workers(using)
    for lane, row in rows.items():
        new = judge(
            Evidence(**{name: getattr(row, name) for name in _FIELDS}),
            flights.get(lane, Flight()),
            now=row.now,
            grace=timedelta(seconds=guard_settings().sweep.resend_grace),
            ready=ready.get(queues[lane]),
            free=has_free_slots(lane, flights, workers),
        )
        _write(using, row, new)
    presence.forget_silent(using)


def _ready(queues: Collection[str]) -> dict[str, int]:
    try:
        return ready_in(load_app(), queues, guard_settings().relay.timeout)
    # Any transport's error: without an answer there is no evidence, and that is all it means.
    except Exception as error:  # noqa: BLE001
        emit("relay.sweep_blind", logging.WARNING, error=f"{type(error).__name__}: {error}")
        return {}


def flights_of(using: str, lanes: Iterable[str]) -> dict[str, Flight]:
    """What each lane has in the broker, by the ledger. Plain jobs don't count."""
    waiting, running = Q(state=State.WAITING), Q(state=State.RUNNING)
    rows = (
        Job.objects.using(using)
        .filter(lane__in=list(lanes), sent_at__isnull=False, plain=False)
        .values_list("lane")
        .annotate(
            waiting=Count("id", filter=waiting),
            oldest=Min("sent_at", filter=waiting),
            running=Count("id", filter=running),
            # A job claimed without a sending (adopted, drained) did not come through the queue.
            newest=Max("sent_at", filter=running & Q(sends__gt=0)),
        )
    )
    return {
        lane: Flight(waiting=count, oldest=oldest, running=runs, newest_claimed=newest)
        for lane, count, oldest, runs, newest in rows
    }


def has_free_slots(lane: str, flights: dict[str, Flight], workers: Collection[Worker]) -> bool:
    """Whether the workers of ``lane`` could start a job now, as far as the ledger knows.

    Where no worker has reported the lane's queue, only a lane that runs nothing counts.
    """
    settings = guard_settings()
    serving = [w for w in workers if settings.lane(lane).queue in w.queues]
    served = {settings.lane_of_queue(queue).name for worker in serving for queue in worker.queues}
    running = sum(flights[name].running for name in served | {lane} if name in flights)
    return running < (sum(worker.slots for worker in serving) or 1)


def _write(using: str, row: LaneLead, new: Evidence) -> None:
    changed: dict[str, datetime | None] = {
        name: getattr(new, name) for name in _FIELDS if getattr(new, name) != getattr(row, name)
    }
    if changed:
        LaneLead.objects.using(using).filter(pk=row.pk).update(**changed)
