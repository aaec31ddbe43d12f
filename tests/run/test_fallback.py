"""What the site runs itself while the broker is away: when, within what bounds, and how it ends."""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connection, connections, transaction
from django.utils import timezone

from celery_guard import AdmissionRefused, batch
from celery_guard.enqueue.rollout import bounds, reading
from celery_guard.enqueue.rollout.bounds import Spent
from celery_guard.errors import JobError
from celery_guard.jobs import claiming
from celery_guard.jobs.clock import in_seconds
from celery_guard.jobs.named import NamedJob
from celery_guard.jobs.release import release
from celery_guard.jobs.sending import unsend
from celery_guard.middleware import problem
from celery_guard.models import Fallback, Gate, Job, Switch
from celery_guard.relay import lead as leads
from celery_guard.relay.lead import Lead
from celery_guard.run import fallback
from celery_guard.run.rescue import rescue
from tests.enqueue.rollout.stages import set_to
from tests.kit.told import told
from tests.kit.wait import wait_for
from tests.project.shop.models import Mark
from tests.project.shop.witness import open_gate, traces
from tests.run.delivery import deliver, job_of, message_of, receive, state_of
from tests.run.marks import on_database
from tests.run.served import (
    after,
    asks_on,
    broker_is_away,
    low_served,
    not_served,
    served,
    served_badly,
    served_in_steps,
)
from tests.run.tasks import told_of_error

pytestmark = [*on_database, pytest.mark.mariadb, pytest.mark.usefixtures("scratch")]

Bound = Callable[..., None]


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    reading.forget()
    yield
    reading.forget()
    wait_for(lambda: fallback._seats._taken == 0, what="the bodies of this test to end")


@pytest.fixture
def bound(settings: Any) -> Bound:
    """`bound(concurrency=2)`: the bounds of the fallback; wide ones for what is not named."""

    def change(**given: object) -> None:
        wide = {"concurrency": 50, "rate": None, "time": 20.0}
        settings.CELERY_GUARD = {
            **settings.CELERY_GUARD,
            "rollout": {"fallback": {**wide, **given}},
        }

    change()
    return change


def crowd(count: int, ask: Callable[[int], Any]) -> list[Any]:
    """What ``count`` threads get that ask at one moment; a refusal is an answer."""
    answers: list[Any] = []
    ready = threading.Barrier(count)

    def one(n: int) -> None:
        try:
            ready.wait()
            answers.append(ask(n))
        except AdmissionRefused as error:
            answers.append(error)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=one, args=(n,)) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


@pytest.mark.bar
def test_a_job_is_run_here_while_the_broker_is_away(bound: Bound) -> None:
    """The handle is ready, the job is a job like any other, and its use is on record."""
    broker_is_away()
    with told() as heard:
        handle = served.submit("a")
    assert (handle.ready(), handle.result) == (True, "a is served")
    job = job_of(handle)
    assert (job.state, job.key, job.fence, job.starts) == ("succeeded", "served:a", 1, 1)
    assert Mark.objects.get().name == "a"
    use = Fallback.objects.get()
    assert (use.task, use.lane, use.job, use.outcome) == (
        served.name,
        "high",
        job.public_id,
        "succeeded",
    )
    assert use.ended_at is not None
    facts = [event.facts for event in heard if event.name == "run.fell_back"]
    assert [(fact["lane"], fact["outcome"]) for fact in facts] == [("high", "succeeded")]


def test_whoever_waits_is_told_by_a_worker(bound: Bound) -> None:
    """Celery's result backend may be away too: the answer is owed until a message brings it."""
    broker_is_away()
    job = job_of(served.submit("a"))
    assert job.awaited is True
    assert job.answered_at is None
    answer = receive(message_of(job))
    assert (state_of(answer), answer.retval) == ("SUCCESS", "a is served")
    job.refresh_from_db()
    assert job.answered_at is not None
    assert traces("served") == ["a"]
    served_badly.apply_async(("b", "unknown"), link_error=told_of_error.s())
    job = job_of(served_badly.submit("b", "unknown"))
    assert (job.state, traces("errback")) == ("failed", [])
    assert state_of(receive(message_of(job))) == "FAILURE"
    assert traces("errback") != []


def test_what_is_not_known_does_not_count(bound: Bound) -> None:
    """Neither a moment's outage, nor the word of a relay that is gone, nor an earlier leader's."""
    broker_is_away(failing=1.0)
    assert job_of(served.submit("not long enough")).state == "waiting"
    broker_is_away(lead=-1.0)
    assert job_of(served.submit("its relay fell silent")).state == "waiting"
    assert leads.take("default", uuid.uuid4(), ["high"], 60.0)
    assert job_of(served.submit("led by another since")).state == "waiting"
    assert not Fallback.objects.exists()


def test_where_there_is_no_fallback(bound: Bound) -> None:
    """All of these do what they do while the broker is there."""
    broker_is_away()
    broker_is_away("low")
    handles = [served.delay("a"), not_served.submit("a"), low_served.submit("a")]
    with transaction.atomic():
        handles.append(served.submit("in a transaction"))
    with batch():
        handles.append(served.submit("in a batch"))
    transaction.set_autocommit(False)
    try:
        handles.append(served.submit("in one by hand"))
        transaction.commit()
    finally:
        transaction.set_autocommit(True)
    assert [job_of(handle).state for handle in handles] == ["waiting"] * 6
    assert not Fallback.objects.exists()
    set_to(served, "off")
    assert served.submit("plainly").result == "plainly is served"
    assert (Job.objects.count(), Fallback.objects.count()) == (6, 0)


@pytest.mark.django_db(transaction=False)
def test_in_a_test_case_it_runs_in_place(bound: Bound) -> None:
    """No other connection could see the test's transaction."""
    broker_is_away()
    assert served.submit("a").result == "a is served"


@pytest.mark.bar
def test_past_its_concurrency_it_refuses_with_retry_after(bound: Bound) -> None:
    """Of twenty at one moment three run; the others are told when to come back, and leave nothing."""
    bound(concurrency=3, time=0.2)
    broker_is_away()
    answers = crowd(20, lambda n: served.submit(f"slow-{n}"))
    refused = [error for error in answers if isinstance(error, AdmissionRefused)]
    assert len(refused) == 17
    assert {(e.reason, e.limit, e.status) for e in refused} == {
        ("fallback", "rollout.fallback.concurrency", 503)
    }
    assert min(int(problem(e)["Retry-After"]) for e in refused) >= 1
    assert Job.objects.count() == 3, "a refused request leaves no job"
    wait_for(lambda: Job.objects.filter(state="running").count() == 3, what="the three to begin")
    for n in range(20):
        open_gate(f"slow-{n}")
    wait_for(lambda: Job.objects.filter(state="succeeded").count() == 3, what="the three to end")
    wait_for(lambda: not Fallback.objects.filter(ended_at=None).exists(), what="free slots")
    assert served.submit("later").result == "later is served"


@pytest.mark.bar
def test_slots_are_counted_over_all_processes(bound: Bound, monkeypatch: Any) -> None:
    """The database counts them: what this process thinks of itself is not what bounds the others."""
    bound(concurrency=3)
    monkeypatch.setattr(fallback._seats, "take", lambda: True)
    monkeypatch.setattr(fallback._seats, "free", lambda: None)
    taken = crowd(20, lambda n: bounds.take("default", task=served.name, lane="high"))
    slots = [slot for slot in taken if not isinstance(slot, Spent)]
    assert len(slots) == 3
    assert Fallback.objects.filter(ended_at=None).count() == 3


@pytest.mark.bar
def test_past_its_rate_it_refuses_with_the_time(bound: Bound) -> None:
    """The burst runs, the next one is told when the rate has room again."""
    bound(rate="1/h", burst=2)
    broker_is_away()
    assert served.submit("a").ready()
    assert served.submit("b").ready()
    with pytest.raises(AdmissionRefused) as refused:
        served.submit("c")
    assert refused.value.limit == "rollout.fallback.rate"
    assert refused.value.retry_after > 60
    assert Job.objects.count() == 2
    Gate.objects.filter(scope=bounds.SCOPE).update(next_at=in_seconds(3599))
    assert served.submit("c").ready()


@pytest.mark.bar
def test_a_burst_takes_no_more_tokens_than_there_are(bound: Bound) -> None:
    """The rate is exact for those that ask at one moment."""
    bound(rate="1/h", burst=4)
    taken = crowd(16, lambda n: bounds.take("default", task=served.name, lane="high"))
    assert len([slot for slot in taken if not isinstance(slot, Spent)]) == 4


def test_a_call_whose_job_is_there_is_not_refused(bound: Bound) -> None:
    """It adds nothing: the answer is the job, as it stands; one that still waits is run now."""
    served.delay("early")
    broker_is_away()
    assert served.submit("early").result == "early is served"
    bound(rate="1/h", burst=1)
    Gate.objects.filter(scope=bounds.SCOPE).update(next_at=in_seconds(7200))
    again = served.submit("early")
    assert (again.created, again.result) == (False, "early is served")
    with pytest.raises(AdmissionRefused):
        served.submit("new")


def test_a_request_waits_for_its_time_only(bound: Bound) -> None:
    """A body that takes longer goes on behind it; the handle tells, now and later."""
    bound(time=0.1)
    broker_is_away()
    with told() as heard:
        handle = served.submit("slow")
    assert not handle.ready()
    wait_for(lambda: handle.state == "STARTED", what="the body to begin")
    assert "run.fallback_slow" in [event.name for event in heard]
    open_gate("slow")
    wait_for(handle.ready, what="the body to end")
    assert handle.result == "slow is served"


@pytest.mark.bar
def test_a_body_past_its_lease_has_lost_the_job(bound: Bound) -> None:
    """No heartbeat keeps it up: a worker runs the job, and what the late body wrote is void."""
    bound(time=0.1, lease=0.2, concurrency=1)
    broker_is_away()
    job = job_of(served.submit("slow"))
    wait_for(
        lambda: Job.objects.filter(lease_until__lt=in_seconds(0)).exists(), what="the lease's end"
    )
    rescue("default")
    with pytest.raises(AdmissionRefused):
        # Its slot is free, and yet it is at work in this process.
        served.submit("another")
    open_gate("slow")
    assert state_of(deliver(job)) == "SUCCESS"
    wait_for(lambda: fallback._seats._taken == 0, what="the late body to end")
    job.refresh_from_db()
    assert (job.state, job.starts, job.lost) == ("succeeded", 2, 1)
    assert Mark.objects.count() == 1
    assert traces("served") == ["slow", "slow"]


def test_a_slot_comes_back_from_a_process_that_died(bound: Bound) -> None:
    """After its lease, and not before; whoever held it claims nothing more under it."""
    bound(concurrency=1)
    broker_is_away()
    slot = bounds.take("default", task=served.name, lane="high")
    with pytest.raises(AdmissionRefused):
        served.submit("a")
    Fallback.objects.update(until=in_seconds(-1))
    assert served.submit("a").ready()
    assert isinstance(slot, int)
    job = job_of(served.delay("b"))
    assert not bounds.keep("default", slot, job.public_id)
    assert Fallback.objects.get(pk=slot).outcome == "lost"


def test_without_its_slot_nothing_is_claimed(bound: Bound, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that slept between slot and claim leaves the job to others."""
    broker_is_away()
    usual = claiming.claim_directly

    def late(*args: Any, **options: Any) -> Any:
        Fallback.objects.update(ended_at=timezone.now(), outcome="lost")
        return usual(*args, **options)

    monkeypatch.setattr(fallback.claiming, "claim_directly", late)
    job = job_of(served.submit("a"))
    assert (job.state, job.fence, job.starts) == ("waiting", 0, 0)
    assert traces("served") == []


@pytest.mark.bar
def test_the_relay_comes_back_at_the_same_moment(bound: Bound) -> None:
    """Marked as sent between commit and claim: one run; its message is answered, or is taken back."""
    lead_row = broker_is_away()
    lead = Lead(lane="high", owner=lead_row.owner, term=lead_row.term)
    served.delay("a")
    (sending,) = release("default", lead, 10, None)
    handle = served.submit("a")
    job = job_of(handle)
    assert (job.state, handle.result) == ("succeeded", "a is served")
    assert unsend("default", [sending]) == 0, "a late report of the relay meets nothing"
    assert state_of(receive(message_of(job))) == "SUCCESS"
    assert traces("served") == ["a"]


@pytest.mark.bar
def test_a_worker_that_was_first_keeps_the_job(bound: Bound) -> None:
    """Its message arrived between the commit and the claim: the site looks on."""
    broker_is_away()
    served.delay("a")
    job = Job.objects.get()
    claim = claiming.claim_directly(
        "default", NamedJob(job.pk, job.public_id), owner=job.public_id, lease=60.0
    )
    assert claim is not None
    handle = served.submit("a")
    assert (handle.state, traces("served")) == ("STARTED", [])
    assert Fallback.objects.get().outcome == "unused"
    job.refresh_from_db()
    assert job.fence == claim.hold.fence


def test_a_body_that_fails_is_the_jobs_own_matter(bound: Bound) -> None:
    """The caller gets the handle; the job is judged as in a worker, and nothing it wrote stays."""
    broker_is_away()
    handle = served_badly.submit("a", "unknown")
    assert (job_of(handle).state, handle.state) == ("failed", "FAILURE")
    with pytest.raises(JobError, match="RuntimeError"):
        handle.get()
    handle = served_badly.submit("b", "transient")
    assert (job_of(handle).state, job_of(handle).failures, handle.state) == ("waiting", 1, "RETRY")
    assert list(Fallback.objects.order_by("pk").values_list("outcome", flat=True)) == [
        "failed",
        "waiting",
    ]
    assert not Mark.objects.exists()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_body_that_ends_its_thread_gives_back_slot_and_job(bound: Bound) -> None:
    """As a process that ends: the job waits for another attempt."""
    bound(concurrency=1)
    broker_is_away()
    job = job_of(served_badly.submit("a", "exit"))
    assert (job.state, job.lost, job.fence) == ("waiting", 1, 2)
    assert served.submit("b").ready()


def test_a_body_may_do_what_it_may_in_a_worker(bound: Bound) -> None:
    """Effects, a finish of its own, a next step that goes on, and further work, which is owed."""
    bound(concurrency=1)
    served.apply_async(("linked",), link=after.s())
    broker_is_away()
    assert served_in_steps.submit("a").ready()
    assert (traces("called"), Mark.objects.get().name) == (["a"], "a")
    assert asks_on.submit("more").state == "SUCCESS"
    assert Job.objects.get(key="served:more").state == "waiting"
    assert served.submit("linked").ready()
    assert Job.objects.get(task=after.name).state == "waiting"


def test_a_held_task_is_not_run(bound: Bound) -> None:
    """A switch counts here too."""
    from celery_guard.enqueue.steering import reading as switches
    from celery_guard.enqueue.steering.turning import turn_on

    broker_is_away()
    turn_on(
        "default",
        action="hold",
        lane="",
        task=served.name,
        tenant="",
        reason="r",
        author="me",
        seconds=600,
    )
    try:
        job = job_of(served.submit("a"))
        assert (job.state, job.reason, traces("served")) == ("waiting", "paused", [])
    finally:
        Switch.objects.all().delete()
        switches.forget()


def test_a_call_that_is_refused_leaves_no_slot_behind(bound: Bound) -> None:
    """Whatever the enqueue raises."""
    bound(concurrency=1)
    broker_is_away()
    for _ in range(3):
        with pytest.raises(TypeError):
            served.submit()
    assert set(Fallback.objects.values_list("outcome", flat=True)) == {"unused"}
    assert served.submit("a").ready()


def test_a_slot_that_somebody_just_takes_up_still_counts(bound: Bound) -> None:
    """Over by the clock, but its holder is about to claim under it: that is waited for."""
    if connection.vendor != "postgresql":
        pytest.skip("PostgreSQL's lock time-out is set for it")
    bound(concurrency=1, time=0.3)
    slot = bounds.take("default", task=served.name, lane="high")
    assert isinstance(slot, int)
    Fallback.objects.update(until=in_seconds(-1))
    holding, done = threading.Event(), threading.Event()

    def holder() -> None:
        with contextlib.closing(connections["default"]), transaction.atomic():
            assert bounds.keep("default", slot, Job().public_id)
            holding.set()
            done.wait()

    thread = threading.Thread(target=holder)
    thread.start()
    holding.wait()
    try:
        assert isinstance(bounds.take("default", task=served.name, lane="high"), Spent)
    finally:
        done.set()
        thread.join()
    assert isinstance(bounds.take("default", task=served.name, lane="high"), Spent)
    assert Fallback.objects.filter(ended_at=None).count() == 1


def test_old_uses_are_forgotten(bound: Bound) -> None:
    """The record is kept as long as that of unsuccessful jobs; open slots stay."""
    for days in (31, 29):
        slot = bounds.take("default", task=served.name, lane="high")
        assert isinstance(slot, int)
        bounds.give_back("default", slot, "succeeded")
        Fallback.objects.filter(pk=slot).update(ended_at=in_seconds(-days * 86400))
    bounds.take("default", task=served.name, lane="high")
    assert bounds.forget_old("default") == 1
    assert Fallback.objects.count() == 2
