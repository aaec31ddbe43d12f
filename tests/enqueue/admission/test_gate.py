"""Places are granted exactly, whoever asks at the same time and whatever becomes of them."""

import contextlib
import subprocess
import sys
import threading
from typing import Any

import pytest
from django.db import connection, transaction

from celery_guard import admit
from celery_guard.enqueue.admission import gate, places
from celery_guard.enqueue.admission.gate import remove_idle
from celery_guard.enqueue.admission.models import Gate, Reservation
from celery_guard.jobs.clock import in_seconds
from celery_guard.jobs.models import Job
from tests.enqueue.admission.asking import crowd, granted, refusal
from tests.enqueue.admission.conftest import Limit
from tests.enqueue.admission.tasks import elsewhere, of_shop, once, urgent, work
from tests.enqueue.sessions import LONG, apart, undone, wait
from tests.kit.processes import environment
from tests.kit.wait import wait_for

pytestmark = [pytest.mark.mariadb, pytest.mark.django_db(transaction=True)]

CROWD = 50


@pytest.mark.bar
def test_fifty_requests_at_a_cap_of_ten_are_admitted_ten_times(limit: Limit) -> None:
    """AD-02: a burst that begins at one moment does not get over the line."""
    limit(medium={"depth": 10})
    assert sum(crowd(CROWD, lambda n: granted(work, n))) == 10
    assert Reservation.objects.count() == 10


@pytest.mark.bar
def test_a_counted_gate_is_only_counted_down(limit: Limit) -> None:
    """The quick way is exact too: a count that holds for the whole burst is never passed."""
    limit(medium={"depth": 100}, tenants={"waiting": 100, "rate": "1/h", "burst": 100})
    granted(of_shop, "a")
    Gate.objects.update(room=10, counted_at=in_seconds(60))
    assert sum(crowd(CROWD, lambda n: granted(of_shop, "a"))) == 10
    Gate.objects.update(room=50, counted_at=in_seconds(60), next_at=in_seconds(95 * 3600))
    assert sum(crowd(CROWD, lambda n: granted(of_shop, "a"))) == 5


@pytest.mark.bar
def test_fifty_that_enqueue_at_once_make_ten_jobs(limit: Limit) -> None:
    """Places that turn into jobs while others ask count once, not twice and not never."""
    limit(medium={"depth": 10})

    def request(n: int) -> bool:
        if not granted(work, n):
            return False
        with transaction.atomic():
            work.delay(n)
        return True

    assert sum(crowd(CROWD, request)) == 10
    assert (Job.objects.count(), Reservation.objects.count()) == (10, 0)
    assert not granted(work)


@pytest.mark.bar
def test_what_is_rolled_back_gives_its_place_back(limit: Limit) -> None:
    """AD-02: five of ten roll back, and five new ones fit."""
    limit(medium={"depth": 10})

    def request(n: int) -> bool:
        with places.holding(), admit(work, (n,), on_refused="return") as admission:
            if admission.granted and n % 2:
                with transaction.atomic():
                    work.delay(n)
            elif admission.granted:
                with undone():
                    work.delay(n)
        return admission.granted

    assert crowd(10, request) == [True] * 10
    assert sum(crowd(20, lambda n: granted(work, n))) == 5
    assert Job.objects.count() == 5


@pytest.mark.bar
def test_processes_share_the_cap(limit: Limit) -> None:
    """Two processes that ask fifty times each get exactly what there is."""
    ask = [sys.executable, "-m", "tests.enqueue.admission.asker", "25"]
    started = [
        subprocess.Popen(ask, env=environment(), stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    told = [process.communicate(timeout=3 * LONG)[0].split()[-1] for process in started]
    assert sum(map(int, told)) == 25


def test_a_crowd_in_two_scopes_is_within_both(limit: Limit) -> None:
    """Lane and tenant are taken together or not at all, and nobody deadlocks."""
    limit(medium={"depth": 12}, tenants={"waiting": 5})
    shops = crowd(40, lambda n: f"shop{n % 4}" if granted(of_shop, f"shop{n % 4}") else "")
    assert sum(map(bool, shops)) == 12
    assert max(shops.count(f"shop{n}") for n in range(4)) <= 5


def test_jobs_that_came_without_a_place_count(limit: Limit) -> None:
    """What is there is there, however it came."""
    limit(medium={"depth": 3})
    work.delay(1)
    work.delay(2)
    assert [granted(work) for _ in range(2)] == [True, False]


def test_sent_jobs_still_wait(limit: Limit) -> None:
    """A job in the broker has not started: it takes room until it does."""
    limit(medium={"depth": 2})
    work.delay(1)
    work.delay(2)
    Job.objects.update(sent_at="2020-01-01T00:00:00Z")
    assert not granted(work)
    Job.objects.filter(pk=Job.objects.first().pk).update(
        state="running", owner="6f8c2f0e-8f65-4f10-9b1c-1f1b6a2d3c11"
    )
    assert granted(work)


def test_jobs_for_later_take_no_room(limit: Limit) -> None:
    """A reminder for next week must not close the lane today."""
    limit(medium={"depth": 1})
    work.apply_async((1,), countdown=3600)
    assert granted(work)


def test_other_lanes_have_room_of_their_own(limit: Limit) -> None:
    """A full lane says nothing about another."""
    limit(medium={"depth": 1}, high={"depth": 1})
    assert granted(work)
    assert not granted(work)
    assert granted(urgent)


def test_a_place_that_nobody_takes_comes_back_with_its_time(limit: Limit) -> None:
    """The reservation ends by the database's clock."""
    limit(medium={"depth": 1}, admission={"hold": 0.2})
    assert granted(work)
    assert not granted(work)
    wait_for(lambda: granted(work), what="the place to come back")


def test_a_killed_process_leaves_no_place_behind(limit: Limit) -> None:
    """AD-06: kill -9 with all places in hand; they heal by their time."""
    limit(medium={"depth": 3})
    ask = [sys.executable, "-m", "tests.enqueue.admission.asker", "3", "and wait"]
    process = subprocess.Popen(ask, env=environment(), stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline().split() == ["3"]
    assert not granted(work)
    process.kill()
    process.communicate()
    wait_for(lambda: granted(work), what="the dead process' places to come back")


def test_a_place_that_an_open_transaction_took_is_not_given_away(limit: Limit) -> None:
    """Its time passes while the transaction is open; whether it commits or not is not known yet."""
    limit(medium={"depth": 1}, admission={"hold": 0.3})
    took, goes_on = threading.Event(), threading.Event()

    def request() -> None:
        assert granted(work)
        with transaction.atomic():
            work.delay(1)
            took.set()
            wait(goes_on)

    running = apart(request)
    wait(took)
    wait_for(_is_over, what="the place's time to be over")
    assert not granted(work)
    goes_on.set()
    running.result(LONG)
    assert not granted(work)
    assert Job.objects.count() == 1


def _is_over() -> bool:
    with connection.cursor() as cursor:
        now = "UTC_TIMESTAMP(6)" if connection.vendor == "mysql" else "clock_timestamp()"
        cursor.execute(f"SELECT count(*) FROM celery_guard_reservation WHERE until < {now}")
        return bool(cursor.fetchone()[0])


def test_inside_a_transaction_the_place_is_committed_by_itself(limit: Limit) -> None:
    """The caller's rollback can't take the grant back, and others see it at once."""
    limit(medium={"depth": 1})
    with undone():
        assert granted(work)
        assert not apart(lambda: granted(work)).result(LONG)
    assert Reservation.objects.count() == 1


def test_a_tenants_rate_is_exact(limit: Limit) -> None:
    """A crowd gets the burst and no more; the refusal says when the next one may come."""
    limit(tenants={"rate": "1/h", "burst": 3})
    assert sum(crowd(20, lambda n: granted(of_shop, "a"))) == 3
    refused = refusal(of_shop, "a")
    assert (refused.reason, refused.limit, refused.status) == ("tenant_rate", "tenants.rate", 429)
    assert granted(of_shop, "b")


def test_a_rate_lets_the_next_one_in_with_time(limit: Limit) -> None:
    """The bucket fills by the database's clock."""
    limit(tenants={"rate": "4/s", "burst": 1})
    assert granted(of_shop, "a")
    assert not granted(of_shop, "a")
    wait_for(lambda: granted(of_shop, "a"), what="the next token")


def test_a_refusal_uses_no_rate_up(limit: Limit) -> None:
    """A tenant that the lane refused may ask again without having paid."""
    limit(medium={"depth": 1}, tenants={"rate": "1/h", "burst": 2})
    assert granted(of_shop, "a")
    assert not granted(of_shop, "a")
    Reservation.objects.all().delete()
    wait_for(lambda: granted(of_shop, "a"), what="the room to be counted anew")


def test_a_full_tenant_takes_nothing_of_its_lane(limit: Limit) -> None:
    """Else its refused requests would use up the lane's room for everybody until the next count."""
    limit(medium={"depth": 1000}, tenants={"waiting": 1000})
    assert granted(of_shop, "a")
    # As if both had just been counted: nobody counts anew before the assertion.
    Gate.objects.update(counted_at=in_seconds(60))
    Gate.objects.exclude(pk="lane:medium").update(room=0)
    before = Gate.objects.get(pk="lane:medium").room
    assert not granted(of_shop, "a")
    assert Gate.objects.get(pk="lane:medium").room == before


def test_a_tenants_running_jobs_close_its_gate(limit: Limit) -> None:
    """While as many run as may, its further requests are refused; another's are not."""
    limit(tenants={"running": 1})
    of_shop.delay("a")
    Job.objects.update(
        state="running",
        sent_at="2020-01-01T00:00:00Z",
        owner="6f8c2f0e-8f65-4f10-9b1c-1f1b6a2d3c11",
    )
    assert refusal(of_shop, "a").reason == "tenant_running"
    assert granted(of_shop, "b")


def test_tenants_of_one_name_in_other_letters_are_two(limit: Limit) -> None:
    """Where the database compares without case, the gates still don't."""
    limit(tenants={"rate": "1/h", "burst": 1})
    assert granted(of_shop, "a")
    assert granted(of_shop, "A")


def test_the_ledger_on_another_database_has_its_own_room(limit: Limit) -> None:
    """Gates and places are kept where the task's jobs are."""
    limit(medium={"depth": 1})
    assert granted(elsewhere, "a")
    assert not granted(elsewhere, "b")
    assert granted(once, "a")
    assert Reservation.objects.using("other").count() == 1


def test_gates_of_two_scopes_are_made_without_a_deadlock(limit: Limit) -> None:
    """Nobody has counted before: a crowd of new lanes and tenants at once."""
    limit(medium={"depth": 100}, high={"depth": 100}, tenants={"waiting": 100})
    assert all(crowd(24, lambda n: granted(of_shop, f"shop{n % 3}")))
    assert Gate.objects.count() == 4


def test_a_task_whose_job_exists_is_not_refused(limit: Limit) -> None:
    """An idempotent hit is work that is there already: full or not, it is answered."""
    limit(medium={"depth": 1})
    once.delay("a")
    admission = admit(once, ("a",))
    assert (admission.action, admission.reason) == ("accept", "known")
    assert not once.delay("a").created
    with contextlib.suppress(Exception):
        assert not granted(once, "b")
    assert Reservation.objects.count() == 0


def test_a_request_that_folds_into_a_waiting_one_is_not_refused(limit: Limit) -> None:
    """A coalescing hit adds no work: the look-up goes by the key that waits."""
    from celery_guard.enqueue.admission.known import is_known

    work.delay(1)
    Job.objects.update(coalesce_key="product:1")
    task: Any = work
    assert is_known(task, {"key": None, "coalesce_key": "product:1"}, "default")
    assert not is_known(task, {"key": None, "coalesce_key": "product:2"}, "default")


def test_gates_that_nobody_asks_at_are_removed(limit: Limit) -> None:
    """A tenant that came once leaves no row for ever; the purge does it, and nobody is hurt."""
    limit(tenants={"waiting": 5})
    for shop in ("a", "b", "c"):
        assert granted(of_shop, shop)
    assert remove_idle("default") == 0
    old = "2020-01-01T00:00:00Z"
    Gate.objects.exclude(pk=Gate.objects.first().pk).update(counted_at=old, next_at=old)
    assert remove_idle("default") == 2
    assert Gate.objects.count() == 1
    assert all(granted(of_shop, shop) for shop in "bc")


def test_a_frozen_holder_of_a_gate_holds_up_nobody_for_ever(
    limit: Limit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that stops with the gate locked: others are refused in time, never let past it."""
    if connection.vendor != "postgresql":
        pytest.skip("MariaDB waits as long as its own time-out says")
    monkeypatch.setattr(gate, "PATIENCE", "300ms")
    limit(medium={"depth": 5})
    assert granted(work)
    held, ends = threading.Event(), threading.Event()

    def freeze() -> None:
        with transaction.atomic():
            assert len(Gate.objects.select_for_update()) == 1
            held.set()
            wait(ends)

    frozen = apart(freeze)
    wait(held)
    assert refusal(work).reason == "busy"
    ends.set()
    frozen.result(LONG)
    assert granted(work)
    assert Reservation.objects.count() == 2


def test_a_key_of_the_same_transaction_is_known(limit: Limit) -> None:
    """Its job is not committed yet, and the caller's repetition is idempotent all the same."""
    limit(medium={"depth": 1})
    with transaction.atomic():
        once.delay("a")
        assert granted(once, "b")
        assert admit(once, ("a",)).reason == "known"
