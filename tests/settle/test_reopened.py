"""A provider that takes back what it had confirmed."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from kombu.utils import json

from celery_guard.models import Effect, Job
from celery_guard.settle.reconcile import decide, reconcile, reopen
from celery_guard.settle.states import Recovery
from tests.run.delivery import deliver, job_of
from tests.run.marks import on_database
from tests.settle import tasks
from tests.settle.provider import Bank, raising
from tests.settle.test_effects import again, ask

pytestmark = [*on_database, pytest.mark.mariadb]


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    yield
    tasks.wanted.clear()


@pytest.fixture
def bank() -> Bank:
    """One that knows its keys."""
    bank = Bank(honours_keys=True)
    ask(bank, Recovery.KEYED)
    return bank


def succeeded() -> Effect:
    """The confirmed effect of a job that is over."""
    job = job_of(tasks.pay.delay(str(time.time_ns())))
    deliver(job)
    job.refresh_from_db()
    assert job.state == "succeeded"
    return Effect.objects.get(job=job)


def interrupted(bank: Bank) -> Effect:
    """The first effect, confirmed, of a job whose second one failed."""
    job = job_of(tasks.mails.delay(str(time.time_ns()), 2))
    bank.before = lambda: raising(ConnectionResetError())() if len(bank.calls) == 2 else None
    deliver(job)
    bank.before = lambda: None
    return Effect.objects.get(job=job, state="confirmed")


def take_back(effect: Effect) -> bool:
    """As the provider's webhook does."""
    return reopen("default", effect.provider_key, by="webhook", reason="bounced")


def word(effect: Effect, *, applied: bool) -> Effect:
    """A person's, and the effect after it."""
    assert decide("default", effect.pk, applied=applied, by="eva", reason="seen")
    effect.refresh_from_db()
    return effect


def test_a_late_no_is_a_question_with_its_history(bank: Bank) -> None:
    """Who, when and why are kept, and so is the first answer; the job's end stays."""
    effect = succeeded()
    assert take_back(effect)
    effect.refresh_from_db()
    assert (effect.state, effect.reopened_by, effect.reopened_for) == (
        "manual",
        "webhook",
        "bounced",
    )
    assert effect.reopened_at is not None
    assert json.loads(effect.answer or "")["id"].startswith("ch_")
    assert Job.objects.get(pk=effect.job_id).state == "succeeded"


def test_a_late_no_counts_once(bank: Bank) -> None:
    """A provider repeats its callbacks: what a person decided meanwhile stays."""
    effect = succeeded()
    assert [take_back(effect), take_back(effect)] == [True, False]
    answer = effect.answer
    assert (word(effect, applied=True).state, effect.answer) == ("confirmed", answer)
    assert not take_back(effect)
    effect.refresh_from_db()
    assert (effect.state, effect.reopened_for) == ("confirmed", "bounced")


def test_what_was_never_confirmed_is_not_reopened(bank: Bank) -> None:
    """An open question is decided, not reopened; a key of nobody is nobody's."""
    bank.before = raising(ConnectionResetError())
    job = job_of(tasks.pay.delay(str(time.time_ns())))
    deliver(job)
    effect = Effect.objects.get(job=job)
    assert effect.state == "unknown"
    assert not take_back(effect)
    assert not reopen("default", "0" * 64, by="webhook", reason="bounced")
    effect.refresh_from_db()
    assert (effect.state, effect.reopened_at) == ("unknown", None)


def test_the_effect_of_a_succeeded_job_is_never_sent_again(bank: Bank) -> None:
    """Nobody would send it: as not applied it ends rejected, and says so."""
    effect = succeeded()
    take_back(effect)
    assert word(effect, applied=False).state == "rejected"
    assert len(bank.calls) == 1


def test_a_job_that_goes_on_waits_for_the_word(bank: Bank) -> None:
    """It neither takes the old answer nor sends before somebody has decided."""
    effect = interrupted(bank)
    take_back(effect)
    calls = len(bank.calls)
    job = Job.objects.get(pk=effect.job_id)
    again(job)
    job.refresh_from_db()
    assert (job.state, len(bank.calls)) == ("reconciling", calls)


def test_it_is_sent_again_under_a_new_key(bank: Bank) -> None:
    """The provider would answer the old key from memory, and apply nothing."""
    effect = interrupted(bank)
    take_back(effect)
    old = effect.provider_key
    word(effect, applied=False)
    job = Job.objects.get(pk=effect.job_id)
    again(job)
    job.refresh_from_db()
    effect.refresh_from_db()
    assert (job.state, effect.state, effect.version) == ("succeeded", "confirmed", 1)
    assert effect.provider_key not in ("", old)
    assert bank.applied.count(effect.provider_key) == 1
    assert [s.key for s in bank.calls if s.item == effect.item] == [old, effect.provider_key]


def test_a_lost_answer_to_the_new_call_is_asked_for_under_the_new_key(bank: Bank) -> None:
    """Only the first "not applied" after the reopening changes the key."""
    effect = interrupted(bank)
    take_back(effect)
    word(effect, applied=False)
    bank.after = raising(TimeoutError("read"))
    job = Job.objects.get(pk=effect.job_id)
    again(job)
    effect.refresh_from_db()
    key = effect.provider_key
    Effect.objects.filter(pk=effect.pk).update(state="manual")
    bank.after = lambda: None
    assert word(effect, applied=False).provider_key == key
    reconcile("default")
    again(job)
    job.refresh_from_db()
    assert (job.state, bank.applied.count(key)) == ("succeeded", 1)


@pytest.mark.parametrize("missing", ["by", "reason"])
def test_nobody_reopens_for_no_reason(missing: str) -> None:
    """The audit is not optional."""
    told = {"by": "webhook", "reason": "bounced", missing: " "}
    with pytest.raises(ValueError, match="a name and a reason"):
        reopen("default", "k", **told)
