"""The broker goes and comes back: the site serves, refuses and goes on as before, by itself."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from celery_guard import AdmissionRefused
from celery_guard.enqueue.rollout import reading
from celery_guard.jobs.clock import in_seconds
from celery_guard.models import Fallback, Job, LaneLead
from celery_guard.run import fallback
from celery_guard.run.rescue import rescue
from servers import Private
from tests.flows.staff import hire, job_of
from tests.kit.processes import Processes
from tests.kit.wait import wait_for
from tests.project.shop.models import Mark
from tests.project.shop.witness import open_gate, traces
from tests.run.marks import on_database
from tests.run.served import broker_is_away, served

pytestmark = [*on_database, pytest.mark.mariadb]


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    reading.forget()
    yield
    reading.forget()
    wait_for(lambda: fallback._seats._taken == 0, what="the bodies of this test to end")


def knows_it_is_away() -> bool:
    """Whether the relay has written so."""
    return LaneLead.objects.filter(lane="high", failing_since__isnull=False).exists()


@pytest.mark.bar
@pytest.mark.timeout(180)
def test_it_serves_refuses_and_recovers_by_itself(
    processes: Processes, own_redis: Private, settings: Any
) -> None:
    """With the broker down it serves within its bound, refuses past it, and ends when it is back."""
    bounds = {"concurrency": 2, "rate": None, "time": 0.5, "after": 0, "lease": 60}
    settings.CELERY_GUARD = {**settings.CELERY_GUARD, "rollout": {"fallback": bounds}}
    env = {"GUARD_TEST_BROKER_URL": own_redis.url}
    processes.relay(env=env)
    before = served.submit("before")
    wait_for(lambda: job_of(before).sent_at, what="the relay to send")
    own_redis.kill()
    unlucky = served.submit("unlucky")
    assert job_of(unlucky).state == "waiting", "nobody knows yet"
    wait_for(knows_it_is_away, what="the relay to say so")

    first = served.submit("first")
    wait_for(first.ready, what="the site's own run")
    assert first.result == "first is served"
    for n in range(2):
        assert not served.submit(f"slow-{n}").ready()
    with pytest.raises(AdmissionRefused) as refused:
        served.submit("too much")
    assert refused.value.retry_after >= 1
    for n in range(2):
        open_gate(f"slow-{n}")
    wait_for(lambda: not Fallback.objects.filter(ended_at=None).exists(), what="free slots")
    assert set(Fallback.objects.values_list("outcome", flat=True)) == {"succeeded"}

    own_redis.start()
    wait_for(lambda: not knows_it_is_away(), what="the relay to say that it is back")
    hire(processes, env=env)
    later = served.submit("later")
    wait_for(lambda: not Job.objects.exclude(state="succeeded").exists(), what="all jobs to end")
    wait_for(
        lambda: not Job.objects.filter(awaited=True, answered_at=None).exists(),
        timeout=40,
        what="whoever waits to be told, of the site's own runs too",
    )
    assert Fallback.objects.count() == 3, "the last one went to the worker"
    assert later.get(timeout=10) == "later is served"
    names = ["before", "unlucky", "first", "slow-0", "slow-1", "later"]
    assert Counter(traces("served")) == Counter(names), "each once, whoever ran it"


@pytest.mark.bar
@pytest.mark.timeout(120)
def test_a_web_process_that_dies_loses_and_doubles_nothing(
    processes: Processes, settings: Any
) -> None:
    """Killed after the commit, the claim, the body and the end: each job is done once in the end."""
    wide = {"time": 60, "lease": 60}
    settings.CELERY_GUARD = {**settings.CELERY_GUARD, "rollout": {"fallback": wide}}
    broker_is_away()
    points = ["outbox.committed", "run.claimed", "run.finishing", "run.committed"]
    dying = [
        processes.python("-m", "tests.run.serving", point, env={"GUARD_FAULT": point})
        for point in points
    ]
    assert [process.wait(timeout=60) for process in dying] == [-signal.SIGKILL] * len(points)
    assert Fallback.objects.filter(ended_at=None).count() == len(points)
    wait_for(
        lambda: (
            not Job.objects.filter(state="running", lease_until__gt=in_seconds(0)).exists()
            and not Fallback.objects.filter(until__gt=in_seconds(0)).exists()
        ),
        what="leases and slots to be over",
    )
    rescue("default")
    for point in points:
        assert served.submit(point).result == f"{point} is served"
    assert sorted(Mark.objects.values_list("name", flat=True)) == sorted(points)
    assert dict(Counter(traces("served"))) == {**dict.fromkeys(points, 1), "run.finishing": 2}
