"""Gates that had room are counted anew in one call, exactly as the slower way counts them."""

import threading
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from celery_guard.enqueue.admission import counting, gate
from celery_guard.enqueue.admission.models import Gate, Reservation
from celery_guard.jobs.clock import in_seconds
from celery_guard.jobs.models import Job
from tests.enqueue.admission.asking import crowd, granted, refusal
from tests.enqueue.admission.conftest import Limit
from tests.enqueue.admission.tasks import of_shop, work
from tests.enqueue.sessions import LONG, apart, is_waiting_for_a_lock, wait
from tests.kit.wait import wait_for

pytestmark = [pytest.mark.django_db(transaction=True)]

both_ways = pytest.mark.parametrize("quickly", [True, False])


@pytest.fixture(autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The quick way or, where a test asks for it, the slower one."""
    if connection.vendor != "postgresql":
        pytest.skip("MariaDB has no such function")
    if not request.node.callspec.params.get("quickly", True):
        monkeypatch.setattr(gate, "_recount", lambda *_: False)


def long_ago(**changes: Any) -> None:
    """Nobody has counted for a minute, and the last count said that there was room."""
    Gate.objects.update(counted_at=in_seconds(-60), **{"room": 90, **changes})


def rooms() -> list[int]:
    """What the gates of lane and tenant say now."""
    return [one.room for one in Gate.objects.order_by("scope")]


@pytest.mark.bar
@pytest.mark.parametrize("quickly", [True])
def test_it_takes_one_call_more(limit: Limit, quickly: bool) -> None:
    """The place is asked for, the gates are counted, and it is asked for again."""
    limit(medium={"depth": 100}, tenants={"waiting": 100, "running": 5, "rate": "1000/s"})
    assert granted(of_shop, "a")
    long_ago()
    with CaptureQueriesContext(connection) as queries:
        assert granted(of_shop, "a")
    said = [query["sql"].partition("(")[0] for query in queries.captured_queries]
    take, recount = "SELECT celery_guard_take_1", "SELECT celery_guard_recount_1"
    assert said == [take, recount, take]


@both_ways
def test_everything_that_takes_room_is_seen(limit: Limit, quickly: bool) -> None:
    """Jobs however they came, sent ones that wait, places that last; neither what is due later, nor
    what has ended, nor what is another's.
    """
    limit(medium={"depth": 100}, tenants={"waiting": 50, "running": 5})
    assert granted(of_shop, "a")
    of_shop.delay("a")
    for n in range(3):
        of_shop.delay("b", n)
    of_shop.apply_async(("a", 1), countdown=3600)
    sent, ended = of_shop.delay("a", 2), of_shop.delay("a", 3)
    Job.objects.filter(pk=sent.job.pk).update(sent_at=in_seconds(0))
    Job.objects.filter(pk=ended.job.pk).update(
        state="succeeded", due_at=None, finished_at=in_seconds(0), reason="done"
    )
    for seconds in (60, -1):
        Reservation.objects.create(lane="medium", tenant="a", until=in_seconds(seconds))
    long_ago()
    assert granted(of_shop, "a")
    # Two of a's jobs, its two places, and three of b's in the lane.
    assert rooms() == [100 - 7, 50 - 4]
    assert Reservation.objects.filter(until__lte=in_seconds(0)).count() == 0


@both_ways
def test_a_crowd_does_not_pass_what_a_count_finds(limit: Limit, quickly: bool) -> None:
    """Fifty at one moment at a gate that is to be counted: the jobs that came meanwhile count."""
    limit(medium={"depth": 12}, tenants={"waiting": 100})
    assert granted(of_shop, "a")
    of_shop.delay("a")
    work.delay(1)
    long_ago()
    assert sum(crowd(50, lambda n: granted(of_shop, f"shop{n % 2}"))) == 10
    assert Reservation.objects.count() == 10


@both_ways
def test_it_counts_what_whoever_held_the_gate_let_in(limit: Limit, quickly: bool) -> None:
    """A count that began before another's commit would not see its place, and give it away again."""
    limit(medium={"depth": 10})
    assert granted(work)
    long_ago()
    held, ends = threading.Event(), threading.Event()

    def let_in() -> None:
        with transaction.atomic():
            assert len(Gate.objects.select_for_update()) == 1
            for _ in range(4):
                Reservation.objects.create(lane="medium", until=in_seconds(60))
            held.set()
            wait(ends)

    other = apart(let_in)
    wait(held)
    asking = apart(lambda: granted(work))
    wait_for(is_waiting_for_a_lock, what="the request to wait")
    ends.set()
    other.result(LONG)
    assert asking.result(LONG)
    assert rooms() == [10 - 6]


@both_ways
def test_what_it_finds_full_is_told_by_its_name(limit: Limit, quickly: bool) -> None:
    """Which limit it was is the same, whichever way it was counted."""
    limit(medium={"depth": 3}, tenants={"waiting": 2, "running": 1, "rate": "1/h", "burst": 9})
    assert granted(of_shop, "a")
    jobs = [of_shop.delay("a", n).job.pk for n in range(2)]
    long_ago()
    assert refusal(of_shop, "a").reason == "tenant_waiting"
    Job.objects.filter(pk=jobs[0]).update(
        state="running", sent_at=in_seconds(0), owner="6f8c2f0e-8f65-4f10-9b1c-1f1b6a2d3c11"
    )
    long_ago()
    assert refusal(of_shop, "a").reason == "tenant_running"
    Job.objects.filter(pk__in=jobs).delete()
    long_ago(next_at=in_seconds(48 * 3600))
    assert refusal(of_shop, "a").reason == "tenant_rate"
    for n in range(3):
        work.delay(n)
    long_ago(next_at=None)
    assert refusal(of_shop, "a").reason == "depth"


@both_ways
def test_a_tenant_without_a_bound_is_open(limit: Limit, quickly: bool) -> None:
    """Where only a rate is set there is nothing to count."""
    limit(tenants={"rate": "1000/s"})
    assert granted(of_shop, "a")
    long_ago()
    assert granted(of_shop, "a")
    assert rooms() == [counting.UNBOUNDED - 1]
