"""Sending again: only on evidence, with a growing pause, and never what is held."""

from datetime import timedelta

import pytest
from django.db.models import F
from django.utils import timezone

from celery_guard.jobs.adding import replay
from celery_guard.jobs.release import release, resend
from celery_guard.models import Job, LaneLead, WorkerPresence
from celery_guard.relay import presence
from celery_guard.relay.presence import Worker
from celery_guard.relay.sweep import flights_of, has_free_slots, sweep
from tests.factories import make_job
from tests.relay.ledger import lead, messages, queue_of

pytestmark = pytest.mark.django_db(transaction=True)
GRACE = 30.0


def ago(seconds):
    return timezone.now() - timedelta(seconds=seconds)


def send(held, *, sent_ago, **changes):
    job = make_job(**changes)
    release("default", held, 100, None)
    Job.objects.filter(pk=job.pk).update(sent_at=ago(sent_ago))
    return job


def evidence(**columns):
    LaneLead.objects.filter(lane="high").update(**columns)


def again(held):
    return [sending.id for sending in resend("default", held, 100, GRACE)]


def test_age_alone_is_no_evidence():
    """EV-07: a job sent an hour ago and never claimed stays as it is while nothing accuses it."""
    held = lead()
    send(held, sent_ago=3600)
    assert again(held) == []
    assert Job.objects.get().sends == 1


def test_what_was_sent_before_a_proven_claim_is_sent_again():
    """Jobs sent before the proof go again, the same rows; those sent with it or after don't."""
    held = lead()
    lost, mate = send(held, sent_ago=100), send(held, sent_ago=90)
    proof = Job.objects.get(pk=mate.pk).sent_at
    evidence(proven_sent_at=proof)
    assert again(held) == [lost.pk]
    lost.refresh_from_db()
    assert lost.sends == 2
    assert lost.sent_at > proof
    assert again(held) == []


def test_an_idle_queue_frees_all_that_waited_a_grace():
    """An empty queue beside free workers for a grace: whatever was sent a grace ago is lost."""
    held = lead()
    old, young = send(held, sent_ago=40), send(held, sent_ago=20)
    evidence(idle_since=ago(29))
    assert again(held) == []
    evidence(idle_since=ago(31))
    assert again(held) == [old.pk]
    assert Job.objects.get(pk=young.pk).sends == 1


@pytest.mark.parametrize(
    ("sends", "starts", "wait"), [(2, 0, 60), (4, 0, 240), (5, 4, 30), (20, 0, 3600)]
)
def test_the_pause_doubles_with_each_sending_that_no_claim_answered(sends, starts, wait):
    """A job that was claimed and retried is not punished for those sendings; the cap is an hour."""
    held = lead()
    job = send(held, sent_ago=0)
    evidence(idle_since=ago(9999))
    Job.objects.filter(pk=job.pk).update(sends=sends, starts=starts, sent_at=ago(wait - 5))
    assert again(held) == []
    Job.objects.filter(pk=job.pk).update(sent_at=ago(wait + 5))
    assert again(held) == [job.pk]


@pytest.mark.mariadb
def test_a_replay_counts_what_was_sent_before_as_answered():
    """Its pause starts anew and grows again, however often it was claimed or sent before."""
    held = lead()
    jobs = [send(held, sent_ago=0) for _ in range(3)]
    for job, (sends, starts) in zip(jobs, [(9, 9), (8, 2), (0, 5)], strict=True):
        Job.objects.filter(pk=job.pk).update(
            state="dead", due_at=None, sent_at=None, sends=sends, starts=starts
        )
    assert replay("default", *(job.pk for job in jobs)) == 3
    evidence(idle_since=ago(9999))
    release("default", held, 100, None)
    for wait in (GRACE, 2 * GRACE):
        Job.objects.update(sent_at=ago(wait - 5))
        assert again(held) == []
        Job.objects.update(sent_at=ago(wait + 5))
        assert sorted(again(held)) == [job.pk for job in jobs]
    assert [job.starts for job in Job.objects.order_by("pk")] == [9, 2, 5]


def test_running_and_plain_jobs_are_never_sent_again_on_evidence():
    """A claim is an answer; a plain job has nobody who could answer."""
    held = lead()
    running, plain = send(held, sent_ago=100), send(held, sent_ago=100, plain=True)
    Job.objects.filter(pk=running.pk).update(state="running", owner=running.public_id)
    evidence(idle_since=ago(9999))
    assert again(held) == []
    assert Job.objects.get(pk=plain.pk).sends == 1


def test_a_lost_job_past_its_expiry_ends():
    """What would be sent again too late becomes `expired` instead."""
    held = lead()
    job = send(held, sent_ago=100)
    Job.objects.filter(pk=job.pk).update(expires_at=ago(1))
    evidence(idle_since=ago(9999))
    resend("default", held, 100, GRACE)
    job.refresh_from_db()
    assert (job.state, job.sent_at, job.sends) == ("expired", None, 1)


def test_a_lost_lead_sends_nothing_again():
    """Only the leader of a lane may mark its jobs."""
    held = lead()
    send(held, sent_ago=100)
    evidence(idle_since=ago(9999), term=F("term") + 1)
    assert again(held) == []


def test_the_sweep_finds_an_emptied_queue():
    """After a wipe the queue answers 0, nothing runs, and the lane's row says since when."""
    held = lead()
    send(held, sent_ago=1)
    sweep("default")
    row = LaneLead.objects.get(lane="high")
    assert row.idle_since is not None
    assert messages() == []


def test_the_sweep_sees_that_the_queue_is_full(redis_client):
    """While the broker holds the message there is no evidence."""
    held = lead()
    send(held, sent_ago=1)
    redis_client.lpush(queue_of(), "{}")
    sweep("default")
    assert LaneLead.objects.get(lane="high").idle_since is None


def test_a_direct_claim_accuses_nobody():
    """An adopted job did not come through the queue, so its start proves nothing about it."""
    held = lead()
    lost, adopted = send(held, sent_ago=50), make_job()
    Job.objects.filter(pk=adopted.pk).update(
        state="running", owner=adopted.public_id, sent_at=timezone.now(), starts=1
    )
    flight = flights_of("default", ["high"])["high"]
    assert (flight.waiting, flight.running, flight.newest_claimed) == (1, 1, None)
    assert flight.oldest == Job.objects.get(pk=lost.pk).sent_at


def test_workers_busy_with_other_lanes_are_not_free():
    """Slots are counted over all lanes that a worker serves; unknown workers count by the lane."""
    worker = Worker(name="w", queues=(queue_of("high"), queue_of("low")), slots=2)
    held = lead()
    for lane in ("high", "low"):
        job = make_job(lane=lane)
        Job.objects.filter(pk=job.pk).update(
            state="running", owner=job.public_id, sent_at=timezone.now()
        )
    flights = flights_of("default", ["high", "low"])
    assert held
    assert not has_free_slots("high", flights, [worker])
    assert has_free_slots(
        "high", flights, [worker, Worker(name="x", queues=(queue_of("high"),), slots=1)]
    )
    assert not has_free_slots("high", flights, [])
    assert has_free_slots("medium", flights, [])


def test_a_silent_worker_does_not_count():
    """A worker that stopped reporting neither widens the window nor counts as free."""
    worker = Worker(name="w", queues=(queue_of(),), slots=10)
    owner = lead().owner
    assert presence.window_of("high", presence.live_workers("default")) == 1000
    presence.report("default", owner, worker)
    assert presence.live_workers("default") == [worker]
    assert presence.window_of("high", presence.live_workers("default")) == 40
    WorkerPresence.objects.update(seen_at=ago(presence.silence() + 1))
    assert presence.live_workers("default") == []
    WorkerPresence.objects.update(seen_at=ago(4000))
    assert presence.forget_silent("default") == 1
