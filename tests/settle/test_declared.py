"""``@effect``: declared once, called like a function in any guarded body."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from celery_guard import Applied, NotApplied, Provider, effect, guarded_task
from celery_guard.errors import EffectInTransaction, NoCurrentJob, NotSerializable
from celery_guard.jobs.clock import in_seconds
from celery_guard.models import Effect, Job
from celery_guard.settle.perform import Sending
from celery_guard.settle.reconcile import reconcile
from tests.run.delivery import deliver, job_of
from tests.run.marks import on_database
from tests.settle import declared

pytestmark = on_database


@pytest.fixture
def name() -> str:
    """A business key of the test's own."""
    return str(time.time_ns())


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    yield
    declared.calls.clear()
    declared.behave.clear()


def run(handle: Any) -> Job:
    """Deliver the job once; the row as it is then."""
    job = job_of(handle)
    Job.objects.filter(pk=job.pk, due_at__isnull=False).update(due_at=in_seconds(-1))
    deliver(job)
    job.refresh_from_db()
    return job


def asked() -> list[Any]:
    """What was passed to each call that was made."""
    return [what for _, what in declared.calls]


def test_an_effect_is_called_like_a_function(name: str) -> None:
    """The body passes arguments and gets the answer; the call gets the provider's key."""
    job = run(declared.in_steps.delay(name, [["charge", 7, 30]]))
    kept = Effect.objects.get(job=job)
    assert (job.state, job.result) == ("succeeded", '[{"id": "ch_7_30"}]')
    assert (kept.state, kept.provider, kept.recovery) == ("confirmed", "bank", "reconcilable")
    (sending, what) = declared.calls[0]
    assert (sending.key, what) == (kept.provider_key, (7, 30))


def test_a_later_attempt_gets_the_kept_answer(name: str) -> None:
    """What was done before the failure is not done again, whatever its item."""
    steps = [["charge", 7], ["mail", "a@x"], ["mail", "b@x"], ["fine", "z"], ["mail", "c@x"]]
    handle = declared.in_steps.delay(name, steps)
    assert run(handle).state == "waiting"
    assert run(handle).state == "succeeded"
    assert asked() == [(7, 1), ("a@x", ""), ("b@x", ""), ("c@x", "")]
    items = Effect.objects.filter(name="mail").values_list("item", flat=True)
    assert sorted(items) == ["a@x", "b@x", "c@x"]


def test_a_lost_answer_is_looked_up_with_the_same_arguments(name: str) -> None:
    """``find`` gets what the call got, and nothing is sent again."""

    def lost() -> None:
        raise TimeoutError("read")

    looks = []

    def found(sending: Sending, *args: Any) -> Applied:
        looks.append((sending.key, args))
        return Applied({"id": "found"})

    declared.behave.update(charge=lost, found=found)
    handle = declared.in_steps.delay(name, [["charge", 7, 30]])
    assert run(handle).state == "reconciling"
    reconcile("default")
    job = run(handle)
    assert (job.state, job.result) == ("succeeded", '[{"id": "found"}]')
    assert looks == [(declared.calls[0][0].key, (7, 30))]
    assert len(declared.calls) == 1


def test_a_look_up_that_fails_answers_nothing(name: str) -> None:
    """The question stays open, and the job with it: it does not end failed."""

    def lost(*_: Any) -> Any:
        raise TimeoutError("read")

    declared.behave.update(charge=lost, found=lost)
    handle = declared.in_steps.delay(name, [["charge", 7]])
    run(handle)
    reconcile("default")
    job = run(handle)
    assert (job.state, Effect.objects.get(job=job).state) == ("reconciling", "unknown")
    assert "TimeoutError" in Effect.objects.get(job=job).note


def test_an_answer_that_cannot_be_kept_is_no_answer(name: str) -> None:
    """It was sent, and a later attempt could not be told: the question stays open."""
    declared.behave.update(charge=object, found=lambda *_: NotApplied())
    job = run(declared.in_steps.delay(name, [["charge", 7]]))
    assert (job.state, Effect.objects.get(job=job).state) == ("reconciling", "unknown")


def test_the_same_effect_with_other_arguments_is_refused(name: str) -> None:
    """Without an item there is one per job; the second never gets the first one's answer."""
    job = run(declared.in_steps.delay(name, [["charge", 7, 30], ["charge", 7, 31]]))
    assert job.state == "failed"
    assert "an item of its own" in str(job.error)
    assert asked() == [(7, 30)]


def test_a_default_that_is_written_out_asks_for_the_same(name: str) -> None:
    """As with keys: calls that mean the same are the same."""
    job = run(declared.in_steps.delay(name, [["charge", 7], ["charge", 7, 1]]))
    assert job.state == "succeeded"
    assert asked() == [(7, 1)]


def test_what_is_asked_for_can_be_less_than_what_is_passed(name: str) -> None:
    """``request`` picks what counts; the rest may differ from attempt to attempt."""
    handle = declared.in_steps.delay(name, [["person", 5], ["fine", "z"]])
    assert run(handle).state == "waiting"
    assert run(handle).state == "succeeded"
    assert asked() == ["5"]


def test_arguments_that_cannot_be_compared_are_refused_before_anything_is_sent(name: str) -> None:
    """The error names the effect and the way out."""
    charge = declared.charge

    @guarded_task(key="uncomparable:{name}", atomic=False)
    def uncomparable(name: str) -> None:
        charge(7, object())

    job = run(uncomparable.delay(name))
    assert (job.state, declared.calls) == ("failed", [])
    assert NotSerializable.__name__ in str(job.error)
    assert "effect charge" in str(job.error)
    assert "request=" in str(job.error)


def test_a_long_item_keeps_its_difference(name: str) -> None:
    """Two that differ at their end only are two."""
    steps = [["mail", f"{'x' * 200}{n}"] for n in range(2)]
    assert run(declared.in_steps.delay(name, steps)).state == "succeeded"
    items = {sending.item for sending, _ in declared.calls}
    assert sorted(map(len, items)) == [155, 155]


@pytest.mark.parametrize(
    "task", [declared.at_once, declared.in_a_transaction, declared.while_finishing]
)
def test_in_a_transaction_there_is_no_effect(task: Any, name: str) -> None:
    """A rollback could not undo it: refused, and nothing was sent or written."""
    job = run(task.delay(name))
    assert job.state == "failed"
    assert EffectInTransaction.__name__ in str(job.error)
    assert declared.calls == []
    assert not Effect.objects.filter(job=job).exists()


def test_without_a_job_there_is_no_effect() -> None:
    """Nobody could keep the answer: refused by name, and nothing was sent."""
    with pytest.raises(NoCurrentJob, match="effect charge"):
        declared.charge(1)
    assert declared.calls == []


def test_it_still_looks_like_the_function() -> None:
    """Name and docstring are the function's, and tests can reach it."""
    assert declared.charge.__doc__ == "One per job."
    assert declared.charge.__wrapped__ is not None  # type: ignore[attr-defined]


def some(sending: Sending, order_id: int) -> None:
    """A function that could be an effect."""


async def waits(sending: Sending) -> None:
    """One that could not."""


@guarded_task(key="x:{n}")
def task(n: int) -> None:
    """Another one that could not."""


@pytest.mark.parametrize(
    ("options", "function", "told"),
    [
        ({"name": ""}, some, ["1 to 100 characters"]),
        ({"item": "{ordr}"}, some, ["'ordr', which is no argument; did you mean 'order_id'"]),
        ({"item": "{sending}"}, some, ["'sending', which is no argument"]),
        ({"provider": Provider(recovery="reconcilable")}, some, ["give find="]),
        ({"provider": Provider(recovery="manual"), "find": some}, some, ["never asked"]),
        ({"provider": Provider(recovery="read_only"), "find": some}, some, ["read_only"]),
        ({}, waits, ["must not be async"]),
        ({}, lambda: None, ["take the Sending first"]),
        ({}, task, ["this is a task"]),
        ({"name": "", "item": "{x}"}, some, ["1 to 100 characters", "'x', which is no argument"]),
    ],
)
def test_faults_are_told_at_the_definition(
    options: dict[str, Any], function: Any, told: list[str]
) -> None:
    """All of them at once."""
    with pytest.raises(ImproperlyConfigured) as caught:
        effect(**{"name": "charge", **options})(function)
    for part in told:
        assert part in str(caught.value)


def test_faults_of_a_provider_are_told_at_the_definition() -> None:
    """All of them at once, with what was probably meant."""
    with pytest.raises(ImproperlyConfigured) as caught:
        Provider(name="bank", recovery="keyd", key_window=0, timeout=float("inf"))  # type: ignore[arg-type]
    for part in ("provider bank", "did you mean 'keyed'", "key_window must", "timeout must"):
        assert part in str(caught.value)
