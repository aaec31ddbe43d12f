"""Leases that are over, and those that are kept up."""

import threading
from pathlib import Path

import pytest
from django.db import connections, transaction

from celery_guard.jobs import claiming, rescuing, running
from celery_guard.jobs.clock import in_seconds
from celery_guard.jobs.named import NamedJob
from celery_guard.models import Attempt, Job
from celery_guard.run.heartbeat import heart
from celery_guard.run.owner import owner, owner_of
from celery_guard.run.rescue import end_of, rescue, take_from
from tests.kit.wait import wait_for
from tests.project.shop import tasks
from tests.project.shop.models import Mark
from tests.project.shop.witness import open_gate, traces
from tests.run.delivery import deliver, job_of, receive, send, state_of
from tests.run.marks import on_database
from tests.run.tasks import long

pytestmark = on_database


def _claimed(name: str = "a", lease: float = 60) -> tuple[Job, claiming.Claim]:
    job = job_of(tasks.mark.delay(name))
    send(job)
    claim = claiming.claim("default", NamedJob(job.pk), owner=owner(), lease=lease)
    assert claim is not None
    return job, claim


def _let_lapse(job: Job) -> None:
    Job.objects.filter(pk=job.pk).update(lease_until=in_seconds(-1))


@pytest.mark.bar
def test_a_lease_that_is_over_gives_the_job_back(scratch: Path) -> None:
    """Waiting, due now, with a new fence and no owner; nothing of the budget is used up."""
    job, claim = _claimed()
    _let_lapse(job)
    rescue("default")
    job.refresh_from_db()
    assert (job.state, job.reason, job.owner, job.sent_at) == ("waiting", "lost", None, None)
    assert (job.fence, job.lost, job.failures) == (claim.hold.fence + 1, 1, 0)
    attempt = Attempt.objects.get()
    assert (attempt.outcome, attempt.number) == ("lost", 1)


def test_a_live_lease_is_left_alone(scratch: Path) -> None:
    """However often the sweep comes."""
    job, _ = _claimed()
    rescue("default")
    rescue("default")
    job.refresh_from_db()
    assert (job.state, job.fence) == ("running", 1)


def test_the_third_lost_lease_is_poison(scratch: Path) -> None:
    """A job that takes its worker down each time ends dead, with the reason, and can be replayed."""
    job, _ = _claimed()
    for expected in ("waiting", "waiting", "dead"):
        _let_lapse(job)
        rescue("default")
        job.refresh_from_db()
        assert job.state == expected
        if expected == "waiting":
            send(job)
            assert claiming.claim("default", NamedJob(job.pk), owner=owner(), lease=60)
    assert (job.reason, job.lost, job.starts) == ("poison", 3, 3)
    assert Attempt.objects.filter(job=job).count() == 3


def test_a_locked_running_row_counts_as_alive(scratch: Path) -> None:
    """The sweep passes it over and goes on with the others."""
    held, _ = _claimed("held")
    free, _ = _claimed("free")
    _let_lapse(held)
    _let_lapse(free)
    entered, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with transaction.atomic():
            Job.objects.select_for_update().get(pk=held.pk)
            entered.set()
            leave.wait(20)
        connections.close_all()

    thread = threading.Thread(target=hold)
    thread.start()
    entered.wait(20)
    try:
        rescue("default")
    finally:
        leave.set()
        thread.join()
    held.refresh_from_db()
    free.refresh_from_db()
    assert (held.state, free.state) == ("running", "waiting")


def test_two_sweeps_at_once_give_a_job_back_once(scratch: Path) -> None:
    """The fence grows by one and one attempt is remembered."""
    jobs = [_claimed(f"n{n}")[0] for n in range(30)]
    Job.objects.update(lease_until=in_seconds(-1))
    barrier = threading.Barrier(4)

    def sweep() -> None:
        barrier.wait()
        rescue("default")
        connections.close_all()

    threads = [threading.Thread(target=sweep) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # A sweep passes over what another one has locked; the next finds what is left.
    rescue("default")
    assert set(Job.objects.values_list("state", "fence", "lost")) == {("waiting", 2, 1)}
    assert Attempt.objects.count() == len(jobs)


def test_a_rescue_needs_no_other_row(scratch: Path) -> None:
    """The job's own lease decides, also for a lane that no setting names."""
    job, _ = _claimed()
    Job.objects.update(lane="somebody-elses")
    _let_lapse(job)
    rescue("default")
    job.refresh_from_db()
    assert job.state == "waiting"


def test_a_known_dead_owner_loses_its_job_at_once(scratch: Path) -> None:
    """Only that owner's, and only while it runs."""
    job, _ = _claimed()
    assert take_from("default", NamedJob(job.pk), owner_of(4)) is None
    assert take_from("default", NamedJob(job.pk), owner()) is not None
    assert take_from("default", NamedJob(job.pk), owner()) is None
    job.refresh_from_db()
    assert (job.state, job.lost, job.fence) == ("waiting", 1, 2)


def test_ending_the_job_of_a_dying_owner_is_fenced_and_remembered(scratch: Path) -> None:
    """For a hard time limit: failed, with an attempt; a second time there is nothing to end."""
    job, claim = _claimed()
    error = TimeoutError("slow")
    with transaction.atomic():
        assert end_of("default", NamedJob(job.pk), owner(), "failed", "timed_out", error)
        assert not end_of("default", NamedJob(job.pk), owner(), "failed", "timed_out", error)
    assert not running.succeed(claim.hold)
    attempt = Attempt.objects.get()
    assert (attempt.outcome, attempt.reason, attempt.error) == (
        "failed",
        "timed_out",
        "TimeoutError: slow",
    )


@pytest.mark.bar
def test_a_body_longer_than_its_lease_is_not_rescued(scratch: Path) -> None:
    """The heartbeat keeps the lease up from its own connection, while the body's transaction is open."""
    job = job_of(long.delay("a"))
    message = send(job)
    answers: list[str] = []

    def run() -> None:
        answers.append(state_of(receive(message)))
        connections.close_all()

    thread = threading.Thread(target=run)
    thread.start()
    seen: set[object] = set()

    def beaten() -> bool:
        rescue("default")
        seen.add(Job.objects.values_list("lease_until", flat=True).get())
        return len(seen) > 6

    wait_for(beaten, what="five heartbeats")
    open_gate("a")
    thread.join()
    job.refresh_from_db()
    assert answers == ["SUCCESS"]
    assert (job.state, job.starts, job.lost, len(traces("a"))) == ("succeeded", 1, 0, 1)


def test_short_bodies_write_no_heartbeat(scratch: Path) -> None:
    """Only a body that outlives a third of its lease is kept up."""
    job, claim = _claimed()
    until = Job.objects.get().lease_until
    heart().beat_once()
    job.refresh_from_db()
    assert job.lease_until == until
    assert state_of(deliver(job_of(tasks.mark.delay("b")))) == "SUCCESS"
    assert running.succeed(claim.hold)


def test_a_heartbeat_passes_over_a_locked_row_and_tells_what_is_lost(scratch: Path) -> None:
    """One locked row holds up no other lease; only a row with another fence is lost."""
    jobs = {name: _claimed(name)[0] for name in ("locked", "free", "gone")}
    take_from("default", NamedJob(jobs["gone"].pk), owner())
    Job.objects.update(lease_until=in_seconds(5))
    entered, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with transaction.atomic():
            Job.objects.select_for_update().get(pk=jobs["locked"].pk)
            entered.set()
            leave.wait(20)
        connections.close_all()

    thread = threading.Thread(target=hold)
    thread.start()
    entered.wait(20)
    before = {job.pk: job.lease_until for job in Job.objects.all()}
    try:
        gone = rescuing.beat("default", owner(), {job.pk: 1 for job in jobs.values()}, 600)
    finally:
        leave.set()
        thread.join()
    after = {job.pk: job.lease_until for job in Job.objects.all()}
    moved = {name for name, job in jobs.items() if after[job.pk] != before[job.pk]}
    assert gone == {jobs["gone"].pk}
    assert moved == {"free"}
    assert Mark.objects.count() == 0
