"""The relay as a process: killed, doubled, cut off, told to stop."""

import os
import signal
import uuid
from collections import Counter
from datetime import timedelta

import pytest
from celery import current_app
from django.db import connection, transaction
from django.utils import timezone

from celery_guard.models import Job, LaneLead, OutboxMessage
from celery_guard.relay import presence
from celery_guard.relay.loop import Relay
from celery_guard.relay.presence import Worker
from tests.factories import envelope, make_job
from tests.kit.brokers import delete_queues
from tests.kit.wait import wait_for
from tests.relay.consumer import Consumer
from tests.relay.ledger import (
    depth,
    jobs_on_redis,
    queue_of,
    unsent,
    wait_until_workers_are_read,
)

pytestmark = pytest.mark.django_db(transaction=True)

PATIENT = "tests.relay.settings_patient"
RELAY = ("-m", "tests.project.manage", "guard_relay")
POINTS = [
    "relay.leads",
    "relay.marked",
    "relay.publishing",
    "relay.published",
    "relay.writing_back",
    "relay.wrote_back",
]


@pytest.fixture
def consumer():
    """A stand-in for a worker of the high lane."""
    consumer = Consumer()
    yield consumer
    consumer.close()


@pytest.mark.bar
@pytest.mark.parametrize("point", POINTS)
def test_killed_at_any_point_of_its_loop_it_loses_nothing(processes, relay, consumer, point):
    """OB-09: another relay takes over; each job is claimed once, and nothing is used up."""
    jobs = [make_job().pk for _ in range(120)]
    killed = processes.python(*RELAY, env={"GUARD_FAULT": f"{point}:2"})
    assert killed.wait() == -signal.SIGKILL
    relay()
    wait_for(lambda: consumer.consume() == len(jobs), timeout=40, what="every job to be claimed")
    assert consumer.claims == Counter(jobs)
    assert not Job.objects.exclude(failures=0, state="succeeded").exists()


@pytest.mark.bar
@pytest.mark.parametrize("relays", [2, 8])
def test_many_relays_at_once_send_each_job_once(processes, relays):
    """OB-09: any number may run; one leads each lane, and no row is sent twice."""
    started = [processes.python(*RELAY) for _ in range(relays)]
    high = [make_job().pk for _ in range(150)]
    low = [make_job(lane="low").pk for _ in range(150)]
    wait_for(lambda: not unsent(), timeout=60, what="every job to be sent")
    wait_for(lambda: len(jobs_on_redis("low")) == 150, what="the low messages")
    wait_for(lambda: len(jobs_on_redis()) == 150, what="the high messages")
    assert jobs_on_redis() == Counter(high)
    assert jobs_on_redis("low") == Counter(low)
    assert all(process.alive for process in started)
    assert not Job.objects.exclude(sends=1).exists()


@pytest.mark.bar
def test_poison_at_the_head_is_parked_and_the_rest_goes(relay):
    """OB-11, OB-17: a batch of unsendable rows ends failed at first sight; followers pass."""
    poison = [make_job(due_in=-60, text="{broken").pk for _ in range(5)]
    good = [make_job().pk for _ in range(20)]
    relay()
    wait_for(lambda: len(jobs_on_redis()) == 20, what="the good jobs")
    wait_for(lambda: Job.objects.filter(state="failed").count() == 5, what="the parking")
    assert jobs_on_redis() == Counter(good)
    parked = Job.objects.filter(pk__in=poison)
    assert set(parked.values_list("state", "reason")) == {("failed", "unsendable")}
    assert all(parked.values_list("message", flat=True))


@pytest.mark.bar
def test_an_outage_burns_nothing_and_everything_goes_out_afterwards(relay, own_redis):
    """OB-12: with the broker away rows stay unsent and unchanged, however often it is tried."""
    own_redis.kill()
    process = relay(env={"GUARD_TEST_BROKER_URL": own_redis.url})
    jobs = [make_job() for _ in range(30)]
    wait_for(lambda: "relay.outage" in process.log, what="the outage to be noticed")
    wait_for(lambda: unsent() == 30, what="the rows to be taken back")
    assert set(Job.objects.values_list("sends", "failures", "starts", "state")) == {
        (0, 0, 0, "waiting")
    }
    assert [job.due_at for job in Job.objects.order_by("pk")] == [job.due_at for job in jobs]
    own_redis.start()
    wait_for(lambda: depth(own_redis.url, queue_of()) == 30, timeout=30, what="the jobs")
    assert set(Job.objects.values_list("sends", flat=True)) == {1}


def test_a_frozen_broker_holds_up_no_lead_and_no_stop(relay, own_redis):
    """A broker that never answers: leads are renewed all the while, and TERM ends the relay."""
    process = relay(env={"GUARD_TEST_BROKER_URL": own_redis.url})
    make_job()
    wait_for(lambda: depth(own_redis.url, queue_of()) == 1, what="the first job")
    own_redis.freeze()
    try:
        for _ in range(20):
            make_job()
        term = LaneLead.objects.get(lane="high").term
        renewed = LaneLead.objects.get(lane="high").lead_until
        wait_for(lambda: unsent() == 20, what="the rows to be taken back")
        wait_for(lambda: LaneLead.objects.get(lane="high").lead_until > renewed, what="a renewal")
        assert LaneLead.objects.get(lane="high").term == term
        assert process.stop() == 0
        assert unsent() == 20
    finally:
        own_redis.thaw()


def test_it_goes_on_after_its_database_connection_was_cut(relay):
    """OB-21: every connection of the relay dies; it notices, reconnects and delivers."""
    if connection.vendor != "postgresql":
        pytest.skip("cut with PostgreSQL's own function")
    process = relay()
    for round_ in range(2):
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
            assert cursor.fetchone()[0] > 0
        make_job()
        wait_for(lambda n=round_: sum(jobs_on_redis().values()) == n + 1, what="the delivery")
    assert process.alive


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_told_to_stop_it_ends_well_and_gives_its_lanes_back(relay, number):
    """OB-23: exit code 0, no lead left behind, so that a stand-by need not wait."""
    process = relay()
    wait_for(lambda: LaneLead.objects.filter(owner__isnull=False).count() >= 3, what="the leads")
    process.signal(number)
    assert process.wait(timeout=20) == 0
    assert not LaneLead.objects.filter(owner__isnull=False).exists()


def test_stopped_in_the_middle_of_an_outage_it_leaves_nothing_marked(relay, own_redis):
    """OB-23: what was marked and not published waits again at once, before the process ends."""
    own_redis.freeze()
    try:
        process = relay(env={"GUARD_TEST_BROKER_URL": own_redis.url})
        for _ in range(10):
            make_job()
        wait_for(lambda: unsent() < 10, what="the batch to be marked")
        assert process.stop() == 0
    finally:
        own_redis.thaw()
    assert unsent() == 10


def test_once_sends_what_is_due_and_ends(relay):
    """`--once` drains every lane, leaves what is not due, and exits with 0."""
    due = [make_job().pk for _ in range(7)]
    make_job(due_in=600)
    process = relay("--once")
    assert process.wait() == 0, process.log
    assert jobs_on_redis() == Counter(due)
    assert unsent() == 1
    assert not LaneLead.objects.filter(owner__isnull=False).exists()


def test_a_job_goes_out_when_it_is_due_and_not_before(relay):
    """A countdown lives in the database; the relay wakes by itself when its time has come."""
    relay()
    job = make_job(due_in=2)
    make_job()
    wait_for(lambda: sum(jobs_on_redis().values()) == 1, what="the job that is due")
    assert unsent() == 1
    wait_for(lambda: sum(jobs_on_redis().values()) == 2, what="the later one")
    job.refresh_from_db()
    assert job.sent_at >= job.due_at


def test_a_lane_that_appears_later_is_led_too(relay):
    """A queue outside all lanes is found while the relay runs."""
    relay()
    queue = f"{os.environ['GUARD_TEST_PREFIX']}reports"
    job = make_job(lane=queue, queue=queue)
    wait_for(lambda: unsent() == 0, what="the release")
    wait_for(lambda: depth(os.environ["REDIS_URL"], queue) == 1, what="the message")
    assert LaneLead.objects.get(lane=queue).owner is not None
    assert Job.objects.get(pk=job.pk).sends == 1


def test_it_leads_only_the_lanes_it_is_told_to(relay):
    """`--lanes` leaves the others to other relays."""
    relay("--lanes", "low")
    make_job()
    make_job(lane="low")
    wait_for(lambda: len(jobs_on_redis("low")) == 1, what="the low job")
    assert unsent() == 1
    assert not LaneLead.objects.filter(lane="high", owner__isnull=False).exists()


def test_the_window_bounds_what_the_broker_holds(relay, consumer):
    """Late binding: with more due than the window, the rest waits in the database, in order."""
    relay()
    presence.report("default", uuid.uuid4(), Worker(name="w", queues=(queue_of(),), slots=1))
    wait_until_workers_are_read("high")
    # One transaction, so that the order of release is the order of due times.
    with transaction.atomic():
        jobs = [make_job(due_in=-60 + n).pk for n in range(40)]
    wait_for(lambda: len(jobs_on_redis()) == 16, what="a full window")
    wait_for(lambda: unsent() == 24, what="the rest to be left alone")
    wait_for(lambda: consumer.consume() == 40, what="the rest to follow")
    assert consumer.order == jobs


def test_a_hosted_relay_knows_its_worker_before_it_has_reported():
    """With a backlog at its start it would send a thousand, which no window takes back."""
    relay = Relay("default", current_app, worker=Worker(name="w", queues=(queue_of(),), slots=2))
    with transaction.atomic():
        for _ in range(40):
            make_job()
    try:
        for _ in range(3):
            relay._turn()
        assert unsent() == 24
    finally:
        for line in relay._lines.values():
            line.stop()
            line.join(5)


def test_a_plain_job_is_gone_when_it_is_sent(relay):
    """The message of an unguarded task needs no ledger once the broker has it."""
    make_job(plain=True)
    relay()
    wait_for(lambda: not Job.objects.exists(), what="the row to go")
    assert not OutboxMessage.objects.exists()
    assert depth(os.environ["REDIS_URL"], queue_of()) == 1


def test_a_plain_job_left_by_a_killed_relay_is_sent_again(processes, relay):
    """Nobody claims a plain job: the next leader finds what no relay has in hand any more."""
    make_job(plain=True)
    processes.python(*RELAY, env={"GUARD_FAULT": "relay.publishing"}).wait()
    assert Job.objects.get().sent_at is not None
    # Left long enough ago that no living relay can still have it in hand.
    Job.objects.update(sent_at=timezone.now() - timedelta(seconds=60))
    relay()
    wait_for(lambda: not Job.objects.exists(), what="the message to go after all")
    assert depth(os.environ["REDIS_URL"], queue_of()) == 1


def test_it_works_on_rabbitmq(relay, broker):
    """The same loop with confirms: every job arrives once."""
    jobs = [make_job().pk for _ in range(50)]
    relay()
    wait_for(lambda: depth(broker, queue_of()) == 50, what="the messages")
    assert not unsent()
    assert len(jobs) == 50
    if broker.startswith("amqp"):
        delete_queues(broker)


def test_nothing_is_published_inside_a_transaction(own_redis, relay):
    """OB-18: while the broker hangs, no transaction of the relay is open and no row is locked."""
    if connection.vendor != "postgresql":
        pytest.skip("read from PostgreSQL's own view")
    own_redis.freeze()
    try:
        relay(env={"GUARD_TEST_BROKER_URL": own_redis.url, "DJANGO_SETTINGS_MODULE": PATIENT})
        make_job()
        # Upkeep goes on meanwhile, in transactions of its own that a busy machine may stop in any
        # place; so both are asked until they meet none.
        wait_for(_marked_and_free, what="the marked row to be locked by nobody")
        wait_for(_marked_in_no_transaction, what="no transaction beside the marked row")
    finally:
        own_redis.thaw()


def _marked_and_free() -> bool:
    marked = Job.objects.filter(sent_at__isnull=False)
    with transaction.atomic():
        return marked.select_for_update(skip_locked=True).exists()


def _marked_in_no_transaction() -> bool:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM celery_guard_job WHERE sent_at IS NOT NULL AND NOT EXISTS ("
            "SELECT FROM pg_stat_activity WHERE datname = current_database() "
            "AND state LIKE 'idle in transaction%%')"
        )
        return cursor.fetchone() == (1,)


def test_an_unroutable_message_is_tried_ever_more_rarely(relay):
    """OB-11, OB-15: refused rows get growing due times and don't keep others waiting."""
    changes = {"exchange": "nowhere", "routing_key": "nobody", "declare": []}
    refused = make_job(text=envelope("x", "t", queue_of(), **changes))
    relay()
    wait_for(lambda: Job.objects.get(pk=refused.pk).sends >= 2, what="a second try")
    good = make_job()
    wait_for(lambda: jobs_on_redis() == Counter([good.pk]), what="the good job")
    refused.refresh_from_db()
    assert (refused.state, refused.failures) == ("waiting", 0)
