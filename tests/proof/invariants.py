"""What must always hold, each as a scenario that looks for a breach; AssertionError when it finds one."""

import contextlib
import uuid

from django.db import transaction

from celery_guard.jobs import claiming, rescuing, running, sending
from celery_guard.jobs.clock import DatabaseNow, in_seconds
from celery_guard.jobs.models import Job
from celery_guard.jobs.named import NamedJob
from celery_guard.relay.floor import relay_once
from celery_guard.settle.models import Effect
from celery_guard.testing import drain
from tests.factories import make_job
from tests.project.shop import tasks
from tests.project.shop.models import Mark
from tests.relay.ledger import jobs_on_redis
from tests.run.sessions import elsewhere
from tests.run.tasks import ACTIONS, in_body
from tests.testing.tasks import bank, paid

A, B = uuid.UUID(int=1), uuid.UUID(int=2)


def sent() -> Job:
    """A job that a relay has sent."""
    job = make_job()
    Job.objects.filter(pk=job.pk).update(sent_at=DatabaseNow())
    return job


def claim(job: Job, owner: uuid.UUID, lease: float = 60.0) -> running.Hold | None:
    """The right to run it, if it can be had."""
    claimed = claiming.claim("default", NamedJob(job.pk), owner=owner, lease=lease)
    return claimed and claimed.hold


def one_holder() -> None:
    """1. Two messages of one job: one claim."""
    job = sent()
    holds = [claim(job, owner) for owner in (A, B)]
    assert holds.count(None) == 1


def old_fences_are_void() -> None:
    """1. After a rescue and another claim, nothing that the first holder writes changes the job."""
    job = sent()
    old = claim(job, A)
    assert old is not None
    assert rescuing.lose("default", NamedJob(job.pk), A, limit=3)
    Job.objects.filter(pk=job.pk).update(sent_at=DatabaseNow())
    new = claim(job, B)
    assert new is not None
    assert new.fence > old.fence
    before = Job.objects.filter(pk=job.pk).values().get()
    moved = [
        running.put_back(old, reason="retry", failures=1),
        running.end(old, state="failed", reason="permanent", error="{}"),
        running.succeed(old),
    ]
    assert not any(moved)
    assert Job.objects.filter(pk=job.pk).values().get() == before


def rolled_back_requests_leave_nothing() -> None:
    """2. Nothing of an enqueue that rolled back is seen outside."""
    with contextlib.suppress(ZeroDivisionError), transaction.atomic():
        tasks.mark.delay("a")
        raise ZeroDivisionError
    assert not Job.objects.exists()


def what_was_not_sent_is_due_again() -> None:
    """2. A publish that failed leaves its job waiting, unsent, with a due time."""
    job = sent()
    row = Job.objects.get(pk=job.pk)
    message = sending.Sending(
        id=row.pk,
        public_id=row.public_id,
        task=row.task,
        plain=False,
        awaited=False,
        state=row.state,
        sent_at=row.sent_at,
        sends=1,
        message_id=row.message_id,
        body=b"",
        envelope="",
    )
    sending.unsend("default", [message])
    assert Job.objects.unsent().filter(pk=job.pk).exists()


def business_writes_are_committed_once() -> None:
    """3. An attempt that lost its job in mid-body commits nothing; the second one's rows are single."""
    handle = in_body.delay("a")

    def meanwhile() -> None:
        job = Job.objects.get(public_id=handle.public_id)
        assert job.owner is not None
        rescuing.lose("default", NamedJob(job.pk), job.owner, limit=3)
        ACTIONS["a"] = lambda: None

    ACTIONS["a"] = elsewhere(meanwhile)
    drain()
    drain()
    assert Mark.objects.filter(name="a").count() == 1


def who_waits_is_told() -> None:
    """3. The end of a job whose worker died before it told anybody comes to a worker again."""
    job = make_job(awaited=True, state="succeeded", due_at=None, finished_at=in_seconds(-60))
    relay_once("default")
    assert jobs_on_redis()[job.pk] == 1


def providers_apply_once() -> None:
    """5. A provider that applied a charge and lost the answer is asked, not called again."""
    usual, answers = bank.pay, []

    def loses_the_first_answer(wish: object) -> object:
        answer = usual(wish)  # type: ignore[arg-type]
        answers.append(answer)
        if len(answers) == 1:
            raise ConnectionError("no answer")
        return answer

    bank.pay = loses_the_first_answer  # type: ignore[assignment, method-assign]
    try:
        paid.delay("a")
        drain(later=True)
    finally:
        del bank.pay
    key = Effect.objects.get().provider_key
    times = bank.applied.pop(key)
    assert times == 1


def patience_uses_nothing_up() -> None:
    """6. A job that is asked to come back later has failed at nothing."""
    handle = tasks.throttled.delay("a", 2, 60.0)
    drain(later=True)
    assert Job.objects.get(public_id=handle.public_id).failures == 0


def live_attempts_are_left_alone() -> None:
    """7. A lease that is not over is not taken away."""
    job = sent()
    claim(job, A, lease=60.0)
    rescuing.rescue("default", job.lane, limit=3)
    assert Job.objects.get(pk=job.pk).state == "running"


def dead_attempts_are_rescued() -> None:
    """7. One that is over is taken away by the next sweep."""
    job = sent()
    claim(job, A, lease=-1.0)
    rescuing.rescue("default", job.lane, limit=3)
    assert Job.objects.get(pk=job.pk).state == "waiting"


def heartbeats_keep_leases() -> None:
    """7. A lease about to be over is extended by its owner's heartbeat."""
    job = sent()
    hold = claim(job, A, lease=1.0)
    assert hold is not None
    rescuing.beat("default", A, {job.pk: hold.fence}, 60.0)
    assert Job.objects.filter(pk=job.pk, lease_until__gt=in_seconds(30)).exists()


def keys_are_used_once() -> None:
    """9. A second call, also after the first has ended, finds the job of its key."""
    for _ in range(2):
        tasks.mark.delay("a")
        drain()
    assert Job.objects.filter(key="mark:a").count() == 1
