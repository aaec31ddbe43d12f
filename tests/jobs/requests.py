"""Requests of a coalesce key, released and run by hand."""

import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from django.db import connections, transaction

from celery_guard.jobs import claiming, running
from celery_guard.jobs.claiming import Claim
from celery_guard.jobs.named import NamedJob
from celery_guard.jobs.release import release
from celery_guard.models import Job, LaneLead
from tests.factories import make_job
from tests.relay.ledger import lead

OWNER = uuid.uuid4()
_TIMES = ("created_at", "first_due_at", "due_at", "max_due_at", "started_at", "finished_at")


def ask(key: str = "k", **changes: Any) -> Job:
    """One more request."""
    return make_job(**{"coalesce_key": key, "reason": "new", **changes})


def ask_debounced(age: float, wait: float, max_wait: float, **changes: Any) -> Job:
    """A request of a debounced task, made `age` seconds ago."""
    job = ask(due_in=wait - age, **changes)
    limit = job.created_at + timedelta(seconds=max_wait - age)
    created = job.created_at - timedelta(seconds=age)
    Job.objects.filter(pk=job.pk).update(created_at=created, max_due_at=limit)
    return job


def ask_every(period: float, **changes: Any) -> Job:
    """A request of a task that runs at most once in `period` seconds."""
    job = ask(**changes)
    limit = job.created_at - timedelta(seconds=period)
    Job.objects.filter(pk=job.pk).update(max_due_at=limit)
    return job


def send(lane: str = "high", batch: int = 50) -> list[int]:
    """What one release sends."""
    LaneLead.objects.filter(lane=lane).delete()
    sent = release("default", lead(lane), batch, None)
    return [sending.id for sending in sent if sending.sent_at is not None]


def claim(job: Job | int) -> Claim | None:
    """The claim of a job whose message has arrived."""
    number = job if isinstance(job, int) else job.pk
    return claiming.claim("default", NamedJob(number), owner=OWNER, lease=60)


def begin(job: Job | int) -> Claim:
    """The same where it has to succeed."""
    found = claim(job)
    assert found is not None
    return found


def run(job: Job | int) -> None:
    """Claim and succeed."""
    assert running.succeed(begin(job).hold)


def state(job: Job) -> str:
    """Where the job stands now."""
    job.refresh_from_db()
    return job.state


def let_time_pass(seconds: float) -> None:
    """All times of all jobs lie that much earlier."""
    for job in Job.objects.all():
        moved = {name: getattr(job, name) for name in _TIMES if getattr(job, name)}
        passed = timedelta(seconds=seconds)
        Job.objects.filter(pk=job.pk).update(**{n: when - passed for n, when in moved.items()})


@contextmanager
def held_elsewhere(act: Callable[[], object], *, commit: bool) -> Iterator[None]:
    """`act` is done by another session, and neither committed nor rolled back inside the block."""
    done, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with transaction.atomic():
            act()
            done.set()
            leave.wait(20)
            transaction.set_rollback(not commit)
        connections.close_all()

    thread = threading.Thread(target=hold)
    thread.start()
    assert done.wait(20)
    try:
        yield
    finally:
        leave.set()
        thread.join()
