"""A job that ends badly while a call of its own has no answer does not end yet."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from celery_guard import Provider, current_job, guarded_task
from celery_guard.errors import UnknownOutcome
from celery_guard.jobs.clock import in_seconds
from celery_guard.models import Attempt, Effect, Job
from celery_guard.settle.reconcile import decide, reconcile
from celery_guard.settle.states import Recovery
from tests.run.delivery import deliver, job_of
from tests.run.marks import on_database
from tests.settle import tasks
from tests.settle.provider import Bank, raising
from tests.settle.test_effects import again, ask

pytestmark = [*on_database, pytest.mark.mariadb]


@guarded_task(key="leaving:{name}", atomic=False, failures=2)
def careless(name: str) -> None:
    """Takes the open question for an answer, and fails of something else."""
    job = current_job()
    try:
        job.effect("charge", **tasks.wanted)
    except UnknownOutcome:
        raise ValueError("no receipt") from None
    raise ValueError("no paper")


@guarded_task(key="few:{name}", atomic=False, failures=2)
def few(name: str) -> str:
    """Has a small budget."""
    job = current_job()
    answer = job.effect("charge", **tasks.wanted)
    with job.finish():
        pass
    return str(answer.id)


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    yield
    tasks.wanted.clear()


def begun(task: Any) -> Job:
    """The task's job after its first attempt."""
    job = job_of(task.delay(str(time.time_ns())))
    deliver(job)
    job.refresh_from_db()
    return job


def look(job: Job) -> None:
    """The next look is due, and the body runs."""
    Effect.objects.filter(job=job, state="unknown").update(look_at=in_seconds(-1))
    reconcile("default")
    deliver(job)
    job.refresh_from_db()


def test_another_failure_does_not_end_a_job_that_asks() -> None:
    """It is looked into; once that is answered the job ends as its body wants."""
    bank = Bank()
    ask(bank, Recovery.RECONCILABLE)
    bank.after = raising(TimeoutError("read"))
    job = begun(careless)
    assert (job.state, job.reason) == ("reconciling", "uncertain")
    attempt = Attempt.objects.get(job=job)
    assert (attempt.outcome, "no receipt" in attempt.error) == ("uncertain", True)
    look(job)
    assert (job.state, len(bank.applied)) == ("failed", 1)
    assert "no paper" in str(job.error)


def test_a_used_up_budget_does_not_end_it_either() -> None:
    """A provider that was away for long is asked until it answers: nobody has to replay anything."""
    bank = Bank(honours_keys=True)
    ask(bank, Recovery.KEYED)
    bank.after = raising(TimeoutError("read"))
    job = begun(few)
    again(job)
    job.refresh_from_db()
    assert (job.state, Effect.objects.get(job=job).state) == ("reconciling", "unknown")
    bank.after = lambda: None
    look(job)
    assert (job.state, len(bank.applied)) == ("succeeded", 1)


def test_without_a_question_a_failure_is_an_end() -> None:
    """Confirmed, or certainly not sent: nothing is left to be known."""
    bank = Bank()
    ask(bank, Recovery.MANUAL)
    assert begun(careless).state == "failed"
    bank.before = raising(ConnectionRefusedError())
    job = begun(few)
    again(job)
    job.refresh_from_db()
    assert job.state == "dead"


def test_it_is_looked_into_less_and_less_often_and_not_for_ever() -> None:
    """At once would be a loop; after a day a person decides."""
    bank = Bank(honours_keys=True)
    ask(bank, Recovery.KEYED)
    bank.after = raising(TimeoutError("read"))
    job = begun(few)
    again(job)
    effects = Effect.objects.filter(job=job)
    assert effects.filter(look_at__gt=in_seconds(20), look_at__lt=in_seconds(70)).exists()
    effects.update(created_at=in_seconds(-3600))
    look(job)
    assert effects.filter(look_at__gt=in_seconds(600), look_at__lt=in_seconds(950)).exists()
    effects.update(created_at=in_seconds(-90000))
    look(job)
    assert (job.state, effects.get().state) == ("reconciling", "manual")
    decide("default", effects.get().pk, applied=True, by="eva", reason="seen")
    bank.after = lambda: None
    look(job)
    assert job.state == "succeeded"


def test_a_question_that_only_a_person_can_answer_is_theirs_at_once() -> None:
    """A process that dies between the mark and the call leaves it sent, whatever its body does next."""
    ask(Bank(), Recovery.MANUAL)
    job = job_of(careless.delay(str(time.time_ns())))
    Effect.objects.create(
        job=job, name="other", state="sent", recovery="manual", fence=1, sent_at=in_seconds(-1),
        created_at=in_seconds(-1), provider=Provider().name,
    )  # fmt: skip
    deliver(job)
    job.refresh_from_db()
    assert (job.state, Effect.objects.get(job=job, name="other").state) == ("reconciling", "manual")
