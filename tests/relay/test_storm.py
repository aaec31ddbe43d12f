"""No storm and no loss: long queues, absent workers, a wiped broker."""

import time
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest
from django.db.models import F

from celery_guard.models import Duty, Job
from tests.factories import make_job
from tests.kit.wait import wait_for
from tests.relay.consumer import Consumer
from tests.relay.ledger import jobs_on_redis, unsent

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.bar]


@pytest.fixture
def consumer() -> Iterator[Consumer]:
    """A stand-in for a worker with two slots in the high lane."""
    consumer = Consumer(slots=2)
    yield consumer
    consumer.close()


def sweeps(count: int) -> None:
    """Return when the sweep has been done ``count`` more times."""
    for _ in range(count):
        done = _swept_at()
        wait_for(lambda t=done: _swept_at() != t, what="a sweep")


def _swept_at() -> datetime | None:
    return Duty.objects.filter(name="sweep").values_list("done_at", flat=True).first()


def test_a_long_queue_behind_slow_workers_is_not_sent_again(relay, consumer):
    """EV-07, sized down: jobs wait for many graces in the queue; messages stay at one a job."""
    jobs = [make_job().pk for _ in range(600)]
    relay()
    wait_for(lambda: not unsent(), what="the release")
    until = time.monotonic() + 12
    while time.monotonic() < until and consumer.consume(1) < len(jobs):
        # The pace of a slow worker: about six graces until the queue is empty.
        time.sleep(0.01)
    wait_for(lambda: consumer.consume(10) == len(jobs), what="the rest")
    assert consumer.claims == Counter(jobs)
    assert sum(consumer.messages.values()) <= 1.02 * len(jobs)


def test_absent_workers_are_no_evidence(relay):
    """EV-07: an hour without workers; the queue holds every message, so none is sent again."""
    jobs = [make_job().pk for _ in range(50)]
    relay()
    wait_for(lambda: len(jobs_on_redis()) == 50, what="the messages")
    Job.objects.update(sent_at=F("sent_at") - timedelta(hours=1))
    sweeps(4)
    assert jobs_on_redis() == Counter(jobs)


def test_a_wiped_broker_loses_nothing(relay, redis_client):
    """The broker message is only a hint: after a wipe every job still runs, once."""
    consumer = Consumer()
    jobs = [make_job().pk for _ in range(80)]
    relay()
    wait_for(lambda: consumer.consume(1) >= 30, what="some jobs")
    redis_client.flushdb()
    wait_for(lambda: consumer.consume() == len(jobs), timeout=40, what="all jobs")
    assert consumer.claims == Counter(jobs)
    consumer.close()


def test_a_single_lost_message_in_a_busy_lane_is_found(relay, consumer):
    """Later jobs of the same queue are claimed: that is the evidence against the silent one."""
    lost = make_job()
    relay()
    wait_for(lambda: jobs_on_redis()[lost.pk] == 1, what="the message")
    consumer.lose_all()
    others = [make_job().pk for _ in range(3)]
    wait_for(lambda: consumer.consume() == 3, what="the later jobs to be claimed")
    wait_for(lambda: consumer.consume() == 4, timeout=40, what="the lost one")
    assert consumer.claims == Counter([lost.pk, *others])
