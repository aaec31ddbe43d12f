"""What the guard would have done is counted, and nothing of it is done."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from django.db import DatabaseError, connection, transaction

from celery_guard import UNKEYED, coalesce, guarded_task
from celery_guard.enqueue.admission import measured
from celery_guard.enqueue.rollout import observing
from celery_guard.events import Event
from celery_guard.jobs.clock import in_seconds
from celery_guard.models import Job, Mismatch, Observed, TaskMode
from tests.enqueue.rollout.stages import arguments, messages
from tests.enqueue.tasks import bound as of_shop
from tests.enqueue.tasks import high, keyed, unkeyed
from tests.kit.told import told
from tests.run.delivery import receive

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.mariadb,
    pytest.mark.filterwarnings("ignore:Call to deprecated:DeprecationWarning"),
]

Stage = Callable[..., TaskMode]


@guarded_task(lane="high")
@coalesce("folds:{thing}")
def folds(thing: str) -> None:
    """Of its requests only the latest state matters."""


@guarded_task(key=UNKEYED, dependency="desk")
def at_the_desk(name: str, then: Any = None) -> None:
    """Calls what bears one call at a time."""
    if name == "first":
        receive_plainly(at_the_desk, "second")


@guarded_task(key="tries:{name}", bind=True, max_retries=2)
def tries(self: Any, name: str) -> None:
    """Asks to be tried again, once."""
    if not self.request.retries:
        raise self.retry(countdown=0)


@pytest.fixture(autouse=True)
def _nothing_measured() -> Iterator[None]:
    measured.forget()
    yield
    measured.forget()


@contextlib.contextmanager
def decisions() -> Iterator[Counter[str]]:
    """What is told of decisions in the block, each as `decision reason`."""
    found: Counter[str] = Counter()
    heard: list[Event]
    with told() as heard:
        yield found
    for event in heard:
        if event.name == "enqueue.observed":
            found[f"{event.facts['decision']} {event.facts['reason']}".strip()] += 1


def receive_plainly(task: Any, *args: Any, task_id: str = "") -> Any:
    """A worker gets a message without a job."""
    import uuid

    message = {
        "task": task.name,
        "id": task_id or str(uuid.uuid4()),
        "args": list(args),
        "kwargs": {},
        "delivery_info": {},
        "hostname": "here",
    }
    return receive(message)


def test_nothing_is_changed_for_the_task(stage: Stage, redis_client: redis.Redis) -> None:
    """At once, inside a transaction too, as under `off`: no job, no header, every call is sent."""
    stage(high, "observe")
    with transaction.atomic():
        high.delay("a")
        high.delay("a")
        assert len(messages(redis_client, high)) == 2
    with pytest.raises(TypeError):
        high.delay()
    found = messages(redis_client, high)
    assert [arguments(message) for message in found] == [["a"], ["a"]]
    assert not any("guard_job" in message["headers"] for message in found)
    assert high.submit("b").ready()
    assert not Job.objects.exists()


@pytest.mark.bar
def test_keys_are_judged(stage: Stage) -> None:
    """What would be one job, what would be refused, and what would simply be taken."""
    stage(keyed, "observe")
    with decisions() as found:
        for name in ("a", "b", "a", "a"):
            keyed.delay(name)
        keyed.delay("a", 2)
        keyed.delay(None)
        keyed.delay("c", (1, 2))
    assert found == {
        "accept": 2,
        "return duplicate": 2,
        "refuse KeyConflict": 1,
        "refuse MissingKey": 1,
        "refuse NotSerializable": 1,
    }
    kept = Mismatch.objects.values_list("difference", "count")
    assert dict(kept) == {"would return: duplicate": 2, "would refuse: KeyConflict": 1}


def test_a_transaction_is_judged_at_its_commit(stage: Stage) -> None:
    """What is rolled back would have made no job; the caller's transaction is not touched."""
    stage(keyed, "observe")
    with decisions() as found:
        with transaction.atomic():
            keyed.delay("a")
            assert not Observed.objects.exists()
            transaction.set_rollback(True)
        with transaction.atomic():
            keyed.delay("a")
            keyed.delay("a")
    assert found == {"accept": 1, "return duplicate": 1}


def test_a_coalesced_request_folds_while_another_waits(stage: Stage) -> None:
    """As long as none of them has begun."""
    stage(folds, "observe")
    with decisions() as found:
        folds.delay("a")
        folds.delay("a")
        folds.delay("b")
        Observed.objects.filter(taken=True).update(started_at=in_seconds(0))
        folds.delay("a")
        folds.delay("a")
    assert found == {"accept": 3, "fold coalesced": 2}


def test_full_lanes_and_tenants_would_refuse(stage: Stage, settings: Any) -> None:
    """By the calls seen that have not begun, that run, or that came just now."""
    guard = settings.CELERY_GUARD
    settings.CELERY_GUARD = {
        **guard,
        "lanes": {**guard["lanes"], "high": {**guard["lanes"]["high"], "admission": {"depth": 2}}},
        "tenants": {"running": 1, "rate": "2/h", "burst": 2},
    }
    stage(high, "observe")
    stage(of_shop, "observe")
    with decisions() as found:
        for name in "abc":
            high.delay(name)
        Observed.objects.filter(key="high:a").update(started_at=in_seconds(0))
        high.delay("d")
    assert found == {"accept": 3, "refuse lanes.high.admission.depth": 1}
    with decisions() as found:
        of_shop.delay("a", 7)
        Observed.objects.filter(tenant="7").update(started_at=in_seconds(0))
        of_shop.delay("b", 7)
        Observed.objects.filter(tenant="7").update(ended_at=in_seconds(0))
        of_shop.delay("c", 7)
        of_shop.delay("d", 7)
        of_shop.delay("e", 8)
    assert found == {"accept": 3, "refuse tenants.running": 1, "refuse tenants.rate": 1}


def test_a_worker_says_when_a_call_runs(stage: Stage) -> None:
    """Its dependency's bound is judged where it begins; Celery's own retry is no second call."""
    stage(at_the_desk, "observe")
    stage(tries, "observe")
    with decisions() as found:
        receive_plainly(at_the_desk, "first")
        receive_plainly(at_the_desk, "third")
    assert found == {"accept": 3, "wait dependencies.desk.concurrency": 1}
    assert not Observed.objects.filter(ended_at=None).exists()
    with decisions() as found:
        mine = tries.delay("a").id
        receive_plainly(tries, "a", task_id=mine)
    assert found == {"accept": 1}
    assert not Job.objects.exists()


def test_what_cannot_be_seen_is_left_out(
    stage: Stage, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table that is away costs the call nothing, and is told."""
    stage(high, "observe")

    def broken(*given: Any) -> None:
        connection.cursor().execute("SELECT nothing FROM nowhere")

    monkeypatch.setattr(observing, "_note", broken)
    with told() as heard:
        high.delay("a")
        with transaction.atomic():
            high.delay("b")
        assert high.submit("c").ready()
    assert [event.name for event in heard].count("enqueue.observe_blind") >= 3
    assert len(messages(redis_client, high)) == 2
    with pytest.raises(DatabaseError):
        broken()


def test_old_calls_are_forgotten(stage: Stage) -> None:
    """After a day a key is as good as new."""
    stage(keyed, "observe")
    keyed.delay("a")
    Observed.objects.update(asked_at=in_seconds(-observing.KEPT - 1))
    keyed.delay("b")
    assert observing.forget_old("default") == 1
    with decisions() as found:
        keyed.delay("a")
    assert found == {"accept": 1}


def test_another_mode_observes_nothing(stage: Stage) -> None:
    """It costs what it did."""
    stage(unkeyed, "off")
    unkeyed.delay(1)
    unkeyed.submit(2)
    assert not Observed.objects.exists()
