"""What becomes of a request past a limit: refused, or taken on terms."""

from typing import Any

import pytest

from celery_guard import AdmissionRefused, admit, events
from celery_guard.enqueue.admission.models import Reservation
from celery_guard.events import Event
from celery_guard.jobs.models import Job
from tests.enqueue.admission.asking import granted, refusal
from tests.enqueue.admission.conftest import Limit
from tests.enqueue.admission.lanes import measure, rated
from tests.enqueue.admission.tasks import idle, of_shop, urgent, work
from tests.enqueue.rows import jobs

pytestmark = [pytest.mark.mariadb, pytest.mark.django_db]


def full(task: Any) -> None:
    """Take the one place there is."""
    task.delay()


@pytest.mark.bar
def test_a_refused_request_leaves_nothing(limit: Limit) -> None:
    """Invariant 9: no job, no message, no place; the error says what, by which setting, until when."""
    limit(medium={"depth": 1})
    full(work)
    refused = refusal(work, 2)
    assert (refused.reason, refused.limit) == ("depth", "lanes.medium.admission.depth")
    assert refused.status == 503
    assert refused.retry_after >= 1
    assert (Job.objects.count(), Reservation.objects.count()) == (1, 0)


def test_a_demoted_job_goes_to_the_next_lower_lane(limit: Limit) -> None:
    """It takes a place there, and its message goes to that lane's queue."""
    limit(medium={"depth": 1, "on_full": "demote"}, low={"depth": 5})
    full(work)
    admission = admit(work, (2,))
    assert (admission.action, admission.lane, admission.reason) == ("demote", "low", "depth")
    assert Reservation.objects.get().lane == "low"
    work.delay(2)
    work.delay(3)
    assert [job.lane for job in jobs()] == ["medium", "low", "medium"]
    assert not Reservation.objects.exists()


def test_a_full_lower_lane_refuses_what_was_demoted(limit: Limit) -> None:
    """The reason is the lane's that was asked for."""
    limit(high={"depth": 1, "on_full": "demote"}, medium={"depth": 1}, low={"depth": 1})
    full(urgent)
    full(work)
    assert refusal(urgent).limit == "lanes.high.admission.depth"


def test_there_is_nothing_below_the_lowest(limit: Limit) -> None:
    """To demote from there is to refuse."""
    limit(low={"depth": 1, "on_full": "demote"})
    full(idle)
    assert not granted(idle)


def test_a_deferred_job_is_due_after_the_retry_after(limit: Limit) -> None:
    """It is taken, and comes due when room is expected."""
    limit(medium={"depth": 1, "on_full": "defer"})
    full(work)
    admission = admit(work)
    assert admission.action == "defer"
    work.delay()
    first, later = jobs()
    waits = (later.due_at - first.due_at).total_seconds()
    assert waits >= admission.retry_after >= 5


def test_a_job_taken_to_expire_has_a_time_to_live(limit: Limit) -> None:
    """The lane's ``ttl``, else its objective."""
    limit(medium={"depth": 1, "on_full": "expire", "ttl": 7}, low={"depth": 1, "on_full": "expire"})
    for task in (work, idle):
        full(task)
        assert admit(task).action == "expire"
        task.delay()
    lives = {job.lane: job.expires_at - job.created_at for job in jobs() if job.expires_at}
    assert {lane: round(life.total_seconds()) for lane, life in lives.items()} == {
        "medium": 7,
        "low": 3600,
    }


def test_terms_are_for_one_job(limit: Limit) -> None:
    """The next call, without a place of its own, is a plain one."""
    limit(medium={"depth": 1, "on_full": "expire", "ttl": 7})
    full(work)
    admit(work)
    work.delay()
    work.delay()
    assert sum(job.expires_at is not None for job in jobs()) == 1


def test_what_the_caller_says_wins_over_the_terms(limit: Limit) -> None:
    """An explicit expiry is the caller's own."""
    limit(medium={"depth": 1, "on_full": "expire", "ttl": 7})
    full(work)
    admit(work)
    work.apply_async((1,), expires=99)
    (job,) = [job for job in jobs() if job.expires_at]
    assert round((job.expires_at - job.created_at).total_seconds()) == 99


def test_a_quota_is_refused_whatever_the_lane_does(limit: Limit) -> None:
    """A tenant over its own quota is not another lane's business."""
    limit(medium={"depth": 100, "on_full": "demote"}, tenants={"waiting": 1})
    of_shop.delay("a")
    refused = refusal(of_shop, "a")
    assert (refused.reason, refused.limit, refused.status) == (
        "tenant_waiting",
        "tenants.waiting",
        429,
    )


def test_a_tenant_may_be_named(limit: Limit) -> None:
    """``tenant=`` counts for another than the template gives, and the job takes that place."""
    limit(tenants={"waiting": 5})
    admit(of_shop, ("a",), tenant="group")
    assert Reservation.objects.get().tenant == "group"
    of_shop.delay("a")
    assert not Reservation.objects.exists()


def test_a_tenants_own_limits_come_from_the_sites_callable(limit: Limit) -> None:
    """Big customers may more; what the callable leaves out is as for all."""
    limit(
        tenants={"waiting": 1, "limits": lambda tenant: {"waiting": 2} if tenant == "b" else None}
    )
    assert [granted(of_shop, "a") for _ in range(2)] == [True, False]
    assert [granted(of_shop, "b") for _ in range(3)] == [True, True, False]


def test_a_callable_that_returns_nonsense_is_told(limit: Limit) -> None:
    """All faults at once, with the tenant's name; meanwhile the settings hold."""
    heard: list[Event] = []
    events.receive(heard.append)
    limit(tenants={"waiting": 1, "limits": lambda tenant: {"wating": 2, "rate": "often"}})
    try:
        assert [granted(of_shop, "a") for _ in range(2)] == [True, False]
    finally:
        events._receivers.remove(heard.append)
    told = next(event for event in heard if event.name == "enqueue.tenant_unknown")
    for fault in (
        "tenants.limits('a').wating",
        "did you mean 'waiting'",
        "tenants.limits('a').rate",
    ):
        assert fault in str(told.facts["error"])


def test_a_deadline_that_cannot_be_kept_is_refused(limit: Limit) -> None:
    """The predicted wait is longer than anybody needs the job; no limit has to be set for it."""
    limit(snapshot={"every": 60})
    measure("medium", ready=200, **rated(10))
    refused = refusal(work, max_wait=19)
    assert (refused.reason, refused.status) == ("deadline", 503)
    assert granted(work, max_wait=21)


def test_a_job_with_a_deadline_expires_by_it() -> None:
    """What nobody needs any more is not run: its expiry is its deadline."""
    admit(work, max_wait=30)
    work.delay()
    (job,) = jobs()
    assert round((job.expires_at - job.created_at).total_seconds()) == 30


@pytest.mark.parametrize("max_wait", [0, -1])
def test_a_deadline_in_the_past_is_an_error(max_wait: float) -> None:
    """Nothing can be done in no time."""
    with pytest.raises(ValueError, match="max_wait"):
        admit(work, max_wait=max_wait)


def test_only_guarded_tasks_are_admitted() -> None:
    """Another task has no ledger to count."""
    with pytest.raises(TypeError, match="guarded"):
        admit(print)


def test_arguments_that_do_not_fit_are_told_at_admission() -> None:
    """Before the transaction, not inside it."""
    with pytest.raises(TypeError):
        admit(work, (1, 2, 3))


def test_an_error_copied_from_its_arguments_is_whole() -> None:
    """Celery and multiprocessing rebuild exceptions that way."""
    error = AdmissionRefused("depth", "lanes.low.admission.depth", 12.0)
    copy = type(error)(*error.args)
    assert (copy.reason, copy.limit, copy.retry_after) == (
        "depth",
        "lanes.low.admission.depth",
        12.0,
    )
    assert str(copy) == str(error)
    assert "12 s" in str(error)
