"""A place is consumed in the transaction of its job, and goes back where that does not commit."""

import time
from typing import Any

import pytest
from celery import chain
from django.db import transaction

from celery_guard import AdmissionRefused, admit, admits, batch, enqueue_many
from celery_guard.enqueue.admission import places
from celery_guard.enqueue.admission.models import Reservation
from celery_guard.enqueue.rollout import reading as modes
from celery_guard.events import Event, receive
from celery_guard.jobs.models import Job
from tests.enqueue.admission.asking import granted
from tests.enqueue.admission.conftest import Limit
from tests.enqueue.admission.lanes import measure
from tests.enqueue.admission.tasks import of_shop, once, urgent, work
from tests.enqueue.rollout.stages import set_to
from tests.enqueue.rows import celery_settings
from tests.enqueue.sessions import apart, undone
from tests.enqueue.tasks import app

pytestmark = [pytest.mark.mariadb, pytest.mark.django_db(transaction=True)]


def kept() -> int:
    """How many places are kept."""
    return Reservation.objects.count()


def test_it_goes_with_the_jobs_own_transaction(limit: Limit) -> None:
    """Until the commit others still see the place; after it they see the job."""
    limit(medium={"depth": 5})
    admit(work)
    with transaction.atomic():
        work.delay()
        assert kept() == 0
        assert apart(kept).result(10) == 1
    assert apart(kept).result(10) == 0


def test_a_rolled_back_enqueue_may_take_it_again(limit: Limit) -> None:
    """A view that repeats its transaction after a deadlock has its place still."""
    limit(medium={"depth": 1})
    admit(work)
    with undone():
        work.delay()
    assert kept() == 1
    with transaction.atomic():
        work.delay()
    assert (kept(), Job.objects.count()) == (0, 1)


def test_a_rolled_back_savepoint_may_too(limit: Limit) -> None:
    """The same inside one transaction."""
    limit(medium={"depth": 1})
    admit(work)
    with transaction.atomic():
        with undone():
            work.delay()
        work.delay()
    assert (kept(), Job.objects.count()) == (0, 1)


def test_each_job_takes_one_place(limit: Limit) -> None:
    """Two places, three jobs: the third is enqueued without one."""
    limit(medium={"depth": 5})
    admit(work)
    admit(work)
    for _ in range(3):
        work.delay()
    assert (kept(), Job.objects.count()) == (0, 3)


def test_a_place_is_for_its_task_and_tenant(limit: Limit) -> None:
    """Others don't take it."""
    limit(medium={"depth": 5}, tenants={"waiting": 5})
    admit(of_shop, ("a",))
    work.delay()
    of_shop.delay("b")
    assert kept() == 1
    of_shop.delay("a")
    assert kept() == 0


def test_batches_consume_in_one_statement(limit: Limit) -> None:
    """A bulk call takes as many places as it writes jobs."""
    limit(medium={"depth": 5})
    for _ in range(3):
        admit(work)
    with batch():
        work.delay()
        work.delay()
    assert kept() == 1
    enqueue_many([work.s(1)])
    assert kept() == 0


def test_a_duplicate_takes_no_place(limit: Limit) -> None:
    """No new job, so the place is still there to be given back."""
    limit(medium={"depth": 5})
    admission = admit(once, ("a",))
    once.delay("a")
    assert kept() == 0
    with admit(once, ("a",)):
        assert not once.delay("a").created
        assert kept() == 1
    assert kept() == 0
    assert admission.granted


def test_a_block_gives_back_what_was_not_taken(limit: Limit) -> None:
    """Also when it raises; and one that an open transaction took stays with that."""
    limit(medium={"depth": 1})
    with pytest.raises(ZeroDivisionError), admit(work):
        raise ZeroDivisionError
    assert kept() == 0
    with transaction.atomic():
        with admit(work):
            work.delay()
        assert apart(kept).result(10) == 1
    assert (kept(), Job.objects.count()) == (0, 1)


def test_a_place_whose_time_was_over_is_told(limit: Limit) -> None:
    """The job is enqueued all the same: only that its room may be another's is said."""
    from celery_guard import events

    told: list[Event] = []
    receive(told.append)
    try:
        limit(medium={"depth": 5})
        admit(work)
        Reservation.objects.all().delete()
        work.delay()
    finally:
        events._receivers.remove(told.append)
    assert [event.name for event in told] == ["enqueue.admitted", "enqueue.place_over"]
    assert Job.objects.count() == 1


def test_forgotten_places_do_not_pile_up(limit: Limit) -> None:
    """A script that asks in a loop and enqueues nothing keeps no list of it for ever."""
    limit(medium={"depth": 1000}, admission={"hold": 0.001})
    with places.holding() as held:
        for _ in range(20):
            admit(work)
        assert len(held) < 20


@pytest.mark.bar
def test_without_a_place_a_full_lane_only_signals(limit: Limit) -> None:
    """``delay`` in a transaction is accepted; the handle tells of the pressure."""
    limit(medium={"depth": 10}, snapshot={"every": 60})
    measure("medium", ready=20)
    with transaction.atomic():
        handle = work.delay()
    assert handle.created
    assert handle.pressure == pytest.approx(2.0)
    assert urgent.delay().pressure == 0.0


def test_the_caller_may_have_it_raised(limit: Limit) -> None:
    """``on_overload="raise"``: in or out of a transaction, nothing is written."""
    limit(medium={"depth": 1})
    assert work.apply_async((1,), on_overload="raise").created
    with pytest.raises(AdmissionRefused):
        work.apply_async((2,), on_overload="raise")
    with pytest.raises(AdmissionRefused), transaction.atomic():
        work.s(3).set(on_overload="raise").apply_async()
    assert (kept(), Job.objects.count()) == (0, 1)


def test_the_grant_of_a_raising_call_is_its_own(limit: Limit) -> None:
    """In a transaction the place is committed apart and consumed at once."""
    limit(medium={"depth": 1})
    with transaction.atomic():
        work.apply_async((1,), on_overload="raise")
        assert not apart(lambda: granted(work)).result(10)
    assert (kept(), Job.objects.count()) == (0, 1)


def test_other_words_for_overload_are_an_error() -> None:
    """A misspelt one must not be taken for the default."""
    with pytest.raises(ValueError, match="on_overload"):
        work.apply_async((1,), on_overload="rise")


def test_later_steps_of_a_canvas_are_owed(limit: Limit) -> None:
    """A chain is one message; its next step is not asked about when it comes."""
    from celery_guard.outbox.capture import capture_everything

    limit(medium={"depth": 1})
    work.delay()
    chain(work.si(1), work.si(2)).apply_async()
    with transaction.atomic(), capture_everything("default"):
        work.s(3).set(on_overload="raise").apply_async()
    assert Job.objects.count() == 3


def test_eager_tasks_know_the_word(limit: Limit) -> None:
    """Tests that run eagerly have no lanes to fill."""
    limit(medium={"depth": 1})
    work.delay()
    with celery_settings(app(), task_always_eager=True):
        assert work.apply_async((1,), on_overload="raise").successful()


def test_the_handle_of_a_lane_without_limits_costs_nothing(
    django_assert_num_queries: Any,
) -> None:
    """No limit set: pressure is 0 without a query."""
    handle = work.delay()
    with django_assert_num_queries(0):
        assert handle.pressure == 0.0


def test_the_terms_of_a_place_are_for_its_tenant() -> None:
    """A deadline or a lower lane that one tenant was given is not another one's."""
    admit(of_shop, ("a",), max_wait=5)
    assert of_shop.delay("b").job.expires_at is None
    assert of_shop.delay("a").job.expires_at is not None


@pytest.mark.parametrize("wrong", [0, -1.0, float("nan"), float("inf"), 1e12])
def test_a_wait_that_no_job_can_have_is_refused_before_a_place_is_taken(
    limit: Limit, wrong: float
) -> None:
    """Where it is asked for, and not by the enqueue that comes after; of a view, where it is marked."""
    limit(medium={"depth": 5})
    with pytest.raises(ValueError, match="max_wait"):
        admit(work, max_wait=wrong)
    with pytest.raises(ValueError, match="max_wait"):
        admits(work, max_wait=wrong)
    assert kept() == 0


def test_the_terms_of_a_forgotten_place_end_with_it() -> None:
    """Whoever asked and then failed leaves nothing to the thread's next call."""
    with places.holding() as held:
        admit(work, max_wait=5)
        held[0].forget_at = time.monotonic()
        assert work.delay().job.expires_at is None


@pytest.mark.parametrize("mode", ["off", "observe", "canary:0.0001"])
def test_a_plain_call_takes_no_place(limit: Limit, mode: str) -> None:
    """What makes no job takes no room, and is refused by neither a full lane nor a deadline."""
    limit(medium={"depth": 1})
    try:
        set_to(once, mode)
        for _ in range(3):
            admission = admit(once, ("a",), max_wait=5)
            assert (admission.action, admission.reason) == ("accept", "plain")
        assert kept() == 0
        set_to(once, "on")
        assert admit(once, ("a",)).granted
        assert not granted(work)
    finally:
        modes.forget()
