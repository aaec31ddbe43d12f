"""`submit`, and the run beside the site's own that the mode compare asks for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import transaction

from celery_guard import GuardError, Transient, current_job, guarded_task
from celery_guard.enqueue.rollout import reading
from celery_guard.enqueue.rollout.comparing import HEADER
from celery_guard.models import Effect, Job, Mismatch, OutboxMessage
from tests.enqueue.rollout.stages import messages, set_to
from tests.enqueue.rows import headers_of
from tests.project.shop.models import Mark
from tests.project.shop.tasks import mark, plain
from tests.run.delivery import deliver, state_of
from tests.run.marks import on_database

pytestmark = [*on_database, pytest.mark.mariadb]

faults: set[str] = set()
calls: list[str] = []


@guarded_task(key="price:{name}", comparable=True)
def price(name: str) -> dict[str, Any]:
    """Writes, enqueues, and returns what it made; a planted fault makes a later run differ."""
    made = Mark.objects.filter(name__startswith=name).count()
    Mark.objects.create(name=f"{name}-{made}")
    if "enqueues" in faults:
        plain.delay(name)
        mark.delay(name)
    if "raises" in faults:
        raise LookupError(name)
    if "passing" in faults:
        raise Transient(name)
    return {"name": name, "lines": [{"total": 2 if "differs" in faults else 1}]}


@guarded_task(key="paid:{name}", comparable=True, atomic=False)
def paid(name: str) -> str:
    """One effect, and business writes with the finish."""
    job = current_job()
    wanted = "refund" if "other" in faults else "charge"
    if "none" in faults:
        return "r1"
    answer = job.effect(wanted, lambda sending: calls.append(sending.key) or {"id": "r1"})
    with job.finish():
        Mark.objects.create(name=answer.id)
    return str(answer.id)


@guarded_task(
    key="near:{name}", comparable=True, compare=lambda one, other: abs(one - other) < 2 or "far off"
)
def near(name: str, by: float = 0.0) -> float:
    """Never the same twice."""
    return 10.0 if "far" in faults else float(len(calls))


@pytest.fixture(autouse=True)
def _nothing_known() -> Iterator[None]:
    for known in (reading._known._kept, faults, calls):
        known.clear()
    yield
    reading.forget()
    faults.clear()


def beside(*found: str) -> Any:
    """Run the one comparison there is, with these faults planted; the answer of Celery's tracer."""
    faults.update(found)
    answer = deliver(Job.objects.get())
    faults.clear()
    return answer


def test_off_runs_here_and_now() -> None:
    """The handle has the result; nothing is written, nothing is sent."""
    set_to(price, "off")
    handle = price.submit("a")
    assert handle.result == handle.get() == {"name": "a", "lines": [{"total": 1}]}
    assert (handle.ready(), handle.successful(), handle.job) == (True, True, None)
    assert not Job.objects.exists()
    faults.add("raises")
    with pytest.raises(LookupError):
        price.submit("a")


def test_on_and_canary_enqueue() -> None:
    """As `delay` does; for keys that canary leaves out, here and now."""
    assert price.submit("a").job is not None
    set_to(price, "canary:50")
    handles = [price.submit(f"n{n}") for n in range(20)]
    ran = [handle for handle in handles if handle.ready()]
    assert 0 < len(ran) < 20
    assert Job.objects.filter(mode="canary").count() == 20 - len(ran)


def test_compare_needs_a_comparable_task() -> None:
    """Nothing runs."""
    set_to(mark, "compare")
    with pytest.raises(GuardError, match="comparable=True"):
        mark.submit("a", "1")
    assert not Mark.objects.exists()


def test_the_same_result_leaves_nothing(redis_client: Any) -> None:
    """The user has the site's own result; the run beside it wrote and sent nothing."""
    set_to(price, "compare")
    assert price.submit("a").result["name"] == "a"
    job = Job.objects.get()
    assert (job.mode, job.key, job.coalesce_key) == ("compare", None, None)
    assert HEADER in headers_of(job)
    answer = beside("enqueues")
    assert state_of(answer) == "SUCCESS"
    job.refresh_from_db()
    assert (job.state, job.result) == ("succeeded", None)
    assert list(Mark.objects.values_list("name", flat=True)) == ["a-0"]
    assert (Job.objects.count(), OutboxMessage.objects.count()) == (1, 1)
    assert messages(redis_client, mark) == []
    assert not Mismatch.objects.exists()


def test_a_comparison_holds_no_key() -> None:
    """The same call is a job of its own once the mode is on."""
    set_to(price, "compare")
    price.submit("a")
    set_to(price, "on")
    assert price.submit("a").created
    assert Job.objects.count() == 2


def test_the_stamp_decides() -> None:
    """A comparison stays one when the mode is on by the time it runs."""
    set_to(price, "compare")
    price.submit("a")
    set_to(price, "on")
    beside()
    assert Mark.objects.count() == 1


@pytest.mark.parametrize(
    ("task", "fault", "name"),
    [
        (price, "differs", "result.lines[].total"),
        (price, "raises", "raised LookupError"),
        (paid, "other", "not asked for before: effect refund"),
        (paid, "none", "left out: effect charge"),
        (near, "far", "far off"),
    ],
    ids=["result", "error", "another effect", "no effect", "comparer"],
)
def test_a_planted_difference_is_found(task: Any, fault: str, name: str) -> None:
    """Kept in its group and counted, without a value; what the run wrote is gone all the same."""
    set_to(task, "compare")
    task.submit("a")
    written = Mark.objects.count()
    assert state_of(beside(fault)) == "SUCCESS"
    job = Job.objects.get()
    assert job.state == "succeeded"
    found = Mismatch.objects.get()
    assert (found.task, found.difference, found.count) == (task.name, name, 1)
    assert found.job == job.public_id
    assert Mark.objects.count() == written
    Job.objects.all().delete()
    Mismatch.objects.update(settled_by="ana", settled_at="2020-01-01T00:00:00Z")
    task.submit("b")
    beside(fault)
    found.refresh_from_db()
    assert (found.count, found.settled_at, found.settled_by) == (2, None, "")


def test_effects_are_suppressed() -> None:
    """The provider hears once, from the site's own run; the body gets the same answer."""
    set_to(paid, "compare")
    assert paid.submit("a").result == "r1"
    beside()
    assert len(calls) == 1
    assert Mark.objects.count() == 1
    assert not Effect.objects.exists()
    assert not Mismatch.objects.exists()


def test_what_passes_is_tried_again() -> None:
    """A transient failure says nothing about the result."""
    set_to(price, "compare")
    price.submit("a")
    beside("passing")
    job = Job.objects.get()
    assert (job.state, job.reason, job.failures) == ("waiting", "retry", 1)
    assert not Mismatch.objects.exists()
    beside()
    job.refresh_from_db()
    assert job.state == "succeeded"


def test_what_can_not_be_compared_costs_the_user_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The result is there, in a transaction too, whatever the ledger says."""
    set_to(price, "compare")
    from celery_guard.enqueue.rollout import comparing

    def broken(*given: Any) -> Any:
        Mark.objects.raw("SELECT nothing FROM nowhere")[0]

    monkeypatch.setattr(comparing.store, "insert", broken)
    with transaction.atomic():
        assert price.submit("a").result["name"] == "a"
    assert Mark.objects.count() == 1
    assert not Job.objects.exists()


def test_a_rolled_back_request_compares_nothing() -> None:
    """The comparison goes with the caller's transaction."""
    set_to(price, "compare")
    with transaction.atomic():
        price.submit("a")
        transaction.set_rollback(True)
    assert not Job.objects.exists()
