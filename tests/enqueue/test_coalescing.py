"""Declaring and asking for coalesced work."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from celery import chain, group, shared_task
from celery.exceptions import TimeoutError as StillRunning
from django.core.exceptions import ImproperlyConfigured
from django.db import transaction

from celery_guard import GuardedTask, coalesce, debounce, enqueue_many, guarded_task
from celery_guard.errors import JobError, MissingKey
from celery_guard.models import Job
from tests.jobs.requests import begin, run, send
from tests.run.delivery import deliver, job_of, state_of
from tests.run.marks import on_database

pytestmark = [*on_database, pytest.mark.mariadb]


@guarded_task(lane="high")
@coalesce("product:{product_id}")
def reindex(product_id: int, text: str = "") -> str:
    """The latest state of a product."""
    return f"{product_id}{text}"


@guarded_task(lane="high")
@coalesce("report:{report_id}", every=30)
def report(report_id: int) -> None:
    """At most twice a minute."""


@guarded_task(lane="high")
@debounce("cart:{cart_id}", wait=5, max_wait=60)
def settle_cart(cart_id: int) -> None:
    """When the customer has been quiet."""


@shared_task(base=GuardedTask, lane="high")
@debounce(lambda cart_id: f"c{cart_id}", wait=2)
def by_base(cart_id: int) -> None:
    """The long form of the decorator."""


@guarded_task(lane="high", bind=True)
@coalesce("bound:{name}")
def bound(self: Any, name: str) -> None:
    """A bound task."""


def _seconds(later: Any, earlier: Any) -> float:
    assert later is not None
    return float((later - earlier) / timedelta(seconds=1))


def test_every_call_is_a_job_of_its_own_under_one_coalesce_key() -> None:
    """No conflict and no look-up: other arguments are welcome."""
    handles = [reindex.delay(5, "a"), reindex.delay(product_id=5), reindex.apply_async((6,))]
    assert all(handle.created for handle in handles)
    keys = [(job_of(handle).key, job_of(handle).coalesce_key) for handle in handles]
    assert keys == [(None, "product:5"), (None, "product:5"), (None, "product:6")]
    assert job_of(by_base.delay(1)).coalesce_key == "c1"
    assert job_of(bound.delay("a")).coalesce_key == "bound:a"


def test_requests_share_the_callers_transaction() -> None:
    """CO-04: what rolls back mutes nothing, and is seen by nobody."""
    with transaction.atomic():
        reindex.delay(5, "never")
        transaction.set_rollback(True)
    assert not Job.objects.exists()
    with transaction.atomic():
        kept = reindex.delay(5, "kept")
    assert send() == [job_of(kept).pk]


def test_bulk_requests_coalesce_too() -> None:
    """One statement, and one run."""
    handles = enqueue_many([reindex.s(5, str(n)) for n in range(5)])
    assert send() == [job_of(handles[-1]).pk]


def test_a_debounced_request_is_due_after_its_wait() -> None:
    """A longer countdown counts too; the bound is kept from the first moment on."""
    job = job_of(settle_cart.delay(1))
    assert _seconds(job.due_at, job.created_at) == pytest.approx(5)
    assert _seconds(job.max_due_at, job.created_at) == pytest.approx(60)
    late = job_of(settle_cart.apply_async((1,), countdown=20))
    assert _seconds(late.due_at, late.created_at) == pytest.approx(20)
    assert _seconds((job := job_of(by_base.delay(1))).max_due_at, job.created_at) == 20


def test_a_period_is_kept_with_the_request() -> None:
    """The relay needs no task to know it: it lies before the creation."""
    job = job_of(report.delay(1))
    assert _seconds(job.created_at, job.max_due_at) == pytest.approx(30)
    assert job.due_at == job.created_at


def test_a_key_without_a_value_is_told_at_the_call() -> None:
    """As for a task's own key; nothing is written."""
    with pytest.raises(MissingKey, match="product_id"):
        reindex.delay(None)
    assert not Job.objects.exists()


@pytest.mark.parametrize(
    ("mark", "options", "words"),
    [
        (coalesce("a:{x}"), {"key": "k:{x}"}, ["not both"]),
        (coalesce("a:{y}", every=0), {}, ["names 'y'", "every must be", "0"]),
        (coalesce("a:{x}", every=-1), {"lane": "hihg"}, ["every must be", "did you mean 'high'"]),
        (debounce("a:{x}", wait=9, max_wait=3), {}, ["max_wait (3) is shorter than wait (9)"]),
        (debounce("a:{x}", wait=0), {}, ["wait must be"]),
        (debounce("a:{x}", wait="5"), {}, ["wait must be", "'5'"]),
        (coalesce("a:{x}", every=1e11), {}, ["every", "longer than a hundred years"]),
        (debounce("a:{x}", wait=1, max_wait=1e12), {}, ["max_wait", "a hundred years"]),
        (debounce("a:{x}", wait=1e9), {}, ["max_wait", "a hundred years"]),
        (coalesce(""), {}, ["must not be empty"]),
        (coalesce(7), {}, ["must be a template or a callable"]),
        (coalesce("a:{x.y}"), {}, ["no template"]),
    ],
)
def test_all_faults_of_a_declaration_are_told_at_once(
    mark: Any, options: dict[str, Any], words: list[str]
) -> None:
    """At the definition, in one message."""

    def body(x: int) -> None: ...

    with pytest.raises(ImproperlyConfigured) as told:
        guarded_task(**options)(mark(body))
    for word in words:
        assert word in str(told.value)


def test_a_decorator_in_the_wrong_place_is_an_error() -> None:
    """Above the task's decorator it would do nothing, and twice it would be ambiguous."""
    with pytest.raises(ImproperlyConfigured, match="stand below"):
        coalesce("a:{x}")(reindex)
    with pytest.raises(ImproperlyConfigured, match="twice"):
        coalesce("a:{x}")(debounce("a:{x}", wait=1)(lambda x: None))
    with pytest.raises(ImproperlyConfigured, match="coalesce is no option"):
        guarded_task(coalesce="a:{x}")(lambda x: None)


@pytest.mark.bar
def test_the_handle_of_a_superseded_job_tells_of_the_run_that_covered_it(scratch: Path) -> None:
    """State and result are the survivor's; nobody has to know its id."""
    first, last = reindex.delay(5, "a"), reindex.delay(5, "b")
    assert first.state == "PENDING"
    assert send() == [job_of(last).pk]
    assert job_of(first).state == "superseded"
    assert first.state == "PENDING"
    with pytest.raises(StillRunning):
        first.get(timeout=0.1)
    assert state_of(deliver(job_of(last))) == "SUCCESS"
    assert (first.state, first.get(timeout=5), last.get(timeout=5)) == ("SUCCESS", "5b", "5b")


def test_the_handle_of_a_superseded_job_raises_what_ended_its_survivor() -> None:
    """A failure of the run that speaks for it is its own."""
    from celery_guard.jobs import running

    first, last = reindex.delay(5, "a"), reindex.delay(5, "b")
    send()
    assert running.end(begin(job_of(last)).hold, state="failed", reason="permanent", error="")
    assert first.state == "FAILURE"
    with pytest.raises(JobError):
        first.get(timeout=5)


def test_a_handle_follows_more_than_one_step() -> None:
    """A survivor that came back and was superseded itself hands on whom it speaks for."""
    from celery_guard.jobs import running

    first, second = reindex.delay(5, "a"), reindex.delay(5, "b")
    send()
    assert running.put_back(begin(job_of(second)).hold, reason="retry", due=0)
    third = reindex.delay(5, "c")
    assert send() == [job_of(third).pk]
    run(job_of(third))
    assert (first.state, second.state) == ("SUCCESS", "SUCCESS")


def test_kept_results_alone_cost_no_echo() -> None:
    """Celery keeps results by default; a burst must not become a message for each request."""
    for n in range(5):
        reindex.delay(5, str(n))
    send()
    assert Job.objects.filter(state="superseded").count() == 4


@pytest.mark.bar
def test_waiting_members_of_a_canvas_are_answered(scratch: Path) -> None:
    """A group's older request is an echo, answered with the survivor's result."""
    group(reindex.s(5, "a"), reindex.s(5, "b")).apply_async()
    older, newest = Job.objects.order_by("pk")
    assert send() == [newest.pk]
    assert state_of(deliver(newest)) == "SUCCESS"
    answer = deliver(older)
    older.refresh_from_db()
    assert (state_of(answer), answer.retval, older.state) == ("SUCCESS", "5b", "succeeded")


def test_the_chain_of_a_superseded_request_goes_on(scratch: Path) -> None:
    """Its next step gets the survivor's result, once, though its own body never ran."""
    from tests.project.shop import tasks

    chain(reindex.s(5, "a"), tasks.mark.s("next")).apply_async()
    newest = reindex.delay(5, "b")
    older = Job.objects.order_by("pk")[0]
    assert send() == [job_of(newest).pk]
    deliver(job_of(newest))
    assert not Job.objects.filter(task=tasks.mark.name).exists()
    message = deliver(older)
    assert state_of(message) == "SUCCESS"
    step = Job.objects.get(task=tasks.mark.name)
    assert step.key == "mark:5b"
