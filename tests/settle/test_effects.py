"""Effects: what a body asks of a provider happens there once."""

from __future__ import annotations

import time
from typing import Any

import pytest

from celery_guard import Permanent, Provider, RetryAfter
from celery_guard.errors import EffectInTransaction
from celery_guard.jobs.clock import in_seconds
from celery_guard.models import Attempt, Effect, Job
from celery_guard.settle import moves
from celery_guard.settle.reconcile import decide, reconcile
from celery_guard.settle.states import Recovery
from tests.run.delivery import deliver, job_of
from tests.run.marks import on_database
from tests.settle import tasks
from tests.settle.provider import Bank, raising

pytestmark = on_database

QUICK = {"timeout": 0.5, "settle_after": 0.0}


@pytest.fixture
def name() -> str:
    """A business key of the test's own."""
    return str(time.time_ns())


@pytest.fixture(autouse=True)
def _forget() -> Any:
    yield
    tasks.wanted.clear()


def ask(bank: Bank, recovery: Recovery, **options: Any) -> None:
    """Let the tasks call ``bank`` under this recovery class."""
    provider = Provider(name="bank", recovery=recovery, **{**QUICK, **options})
    tasks.wanted.update(call=bank.pay, find=bank.find, provider=provider)


def again(job: Job) -> Any:
    """Deliver the job once more, whatever its due time."""
    Job.objects.filter(pk=job.pk).update(due_at=in_seconds(-1))
    return deliver(job)


def test_an_answer_is_kept_for_every_later_attempt(name: str) -> None:
    """A confirmed effect returns its stored answer: the provider is called once."""
    bank = Bank()
    ask(bank, Recovery.MANUAL)
    job = job_of(tasks.mails.delay(name, 2))
    bank.after = lambda: raising(ConnectionError())() if len(bank.calls) == 2 else None
    deliver(job)
    assert Effect.objects.filter(job=job, state="confirmed").count() == 1
    decide("default", Effect.objects.get(state="manual").pk, applied=True, by="eva", reason="seen")
    bank.after = lambda: None
    reconcile("default")
    deliver(job)
    job.refresh_from_db()
    assert (job.state, len(bank.applied)) == ("succeeded", 2)


def test_items_are_effects_of_their_own(name: str) -> None:
    """A batch that dies half-way goes on where it stopped, under the same keys."""
    bank = Bank(honours_keys=True)
    ask(bank, Recovery.KEYED)
    job = job_of(tasks.mails.delay(name, 5))
    bank.before = lambda: raising(ConnectionResetError())() if len(bank.calls) == 3 else None
    deliver(job)
    bank.before = lambda: None
    again(job)
    job.refresh_from_db()
    assert job.state == "succeeded"
    assert len(bank.applied) == len(set(bank.applied)) == 5
    assert [s.item for s in bank.calls] == ["0", "1", "2", "2", "3", "4"]
    assert [s.again for s in bank.calls] == [False, False, False, True, False, False]


def test_a_lost_answer_is_asked_again_under_the_same_key(name: str) -> None:
    """Applied, then a time-out: a keyed provider gets the same key and applies nothing more."""
    bank = Bank(honours_keys=True)
    ask(bank, Recovery.KEYED)
    bank.after = raising(TimeoutError("read"))
    job = job_of(tasks.pay.delay(name))
    deliver(job)
    job.refresh_from_db()
    assert (job.state, job.failures) == ("waiting", 1)
    bank.after = lambda: None
    again(job)
    job.refresh_from_db()
    assert (job.state, len(bank.applied), len(bank.calls)) == ("succeeded", 1, 2)


def test_a_key_that_may_be_forgotten_is_not_used_again(name: str) -> None:
    """Past the provider's memory the same key could be applied twice: it is asked first."""
    bank = Bank()
    ask(bank, Recovery.KEYED, key_window=0.1)
    bank.after = raising(TimeoutError("read"))
    job = job_of(tasks.pay.delay(name))
    deliver(job)
    bank.after = lambda: None
    again(job)
    job.refresh_from_db()
    assert (job.state, len(bank.applied), bank.looks) == ("succeeded", 1, 1)


def test_a_reconcilable_provider_is_asked_before_anything_is_sent(name: str) -> None:
    """A lost answer makes the job reconciling; the look-up finds it, nothing is sent again."""
    bank = Bank()
    ask(bank, Recovery.RECONCILABLE)
    bank.after = raising(TimeoutError("read"))
    job = job_of(tasks.pay.delay(name))
    deliver(job)
    job.refresh_from_db()
    assert (job.state, job.reason, job.failures) == ("reconciling", "uncertain", 0)
    assert Attempt.objects.get(job=job).outcome == "uncertain"
    reconcile("default")
    deliver(job)
    job.refresh_from_db()
    assert (job.state, len(bank.applied), len(bank.calls)) == ("succeeded", 1, 1)


def test_not_found_counts_only_when_it_is_ripe_and_twice(name: str) -> None:
    """One "not found" may come too early: the effect is sent again after two that count."""
    bank = Bank()
    ask(bank, Recovery.RECONCILABLE, timeout=0.05)
    bank.before = raising(TimeoutError("read"))
    job = job_of(tasks.pay.delay(name))
    deliver(job)
    bank.before = lambda: None
    Effect.objects.filter(job=job).update(sent_at=in_seconds(-60))
    reconcile("default")
    deliver(job)
    job.refresh_from_db()
    assert (job.state, bank.looks, len(bank.calls)) == ("reconciling", 1, 1)
    reconcile("default")
    deliver(job)
    job.refresh_from_db()
    assert (job.state, bank.looks, len(bank.calls)) == ("succeeded", 2, 2)


def test_after_giving_up_a_person_decides(name: str) -> None:
    """A provider that never knows stops being asked; the job waits for a decision."""
    bank = Bank()
    ask(bank, Recovery.RECONCILABLE, give_up=10.0)
    bank.after, bank.blind = raising(TimeoutError("read")), True
    job = job_of(tasks.pay.delay(name))
    deliver(job)
    Effect.objects.filter(job=job).update(sent_at=in_seconds(-60))
    reconcile("default")
    deliver(job)
    assert Effect.objects.get(job=job).state == "manual"
    reconcile("default")
    job.refresh_from_db()
    assert job.state == "reconciling"
    with pytest.raises(ValueError, match="a reason"):
        decide("default", Effect.objects.get(job=job).pk, applied=False, by="eva", reason=" ")


def test_without_a_declared_recovery_nothing_is_repeated(name: str) -> None:
    """Unsaid, a lost answer is a person's business; "not applied" sends it again."""
    bank = Bank()
    tasks.wanted.update(call=bank.pay)
    bank.before = raising(TimeoutError("read"))
    job = job_of(tasks.pay.delay(name))
    deliver(job)
    bank.before = lambda: None
    effect = Effect.objects.get(job=job)
    assert effect.state == "manual"
    assert decide("default", effect.pk, applied=False, by="eva", reason="not in the console")
    assert not decide("default", effect.pk, applied=True, by="eva", reason="twice")
    reconcile("default")
    deliver(job)
    job.refresh_from_db()
    assert (job.state, len(bank.applied)) == ("succeeded", 1)


@pytest.mark.parametrize(
    ("error", "state", "failures"),
    [
        (ConnectionRefusedError(), "prepared", 1),
        (RetryAfter(5), "prepared", 0),
        (Permanent("declined"), "rejected", 0),
        (TimeoutError(), "unknown", 1),
        (ConnectionResetError(), "unknown", 1),
        (ValueError("a body that is no answer"), "unknown", 1),
    ],
)
def test_answers_are_classified(name: str, error: Exception, state: str, failures: int) -> None:
    """Not sent, told to wait, refused, or nobody knows: each is another state."""
    bank = Bank()
    ask(bank, Recovery.KEYED)
    bank.before = raising(error)
    job = job_of(tasks.pay.delay(name))
    deliver(job)
    job.refresh_from_db()
    assert (Effect.objects.get(job=job).state, job.failures) == (state, failures)


def test_a_refusal_of_a_repetition_proves_nothing_about_the_first_call(name: str) -> None:
    """Connection refused on the second try: the first may have arrived, so it stays unknown."""
    bank = Bank()
    ask(bank, Recovery.KEYED)
    bank.after = raising(TimeoutError("read"))
    job = job_of(tasks.pay.delay(name))
    deliver(job)
    bank.before = raising(ConnectionRefusedError())
    again(job)
    assert Effect.objects.get(job=job).state == "unknown"


def test_an_attempt_that_lost_its_lease_sends_nothing(name: str) -> None:
    """The intent is fenced: after a rescue the old attempt's call does not go out."""
    bank = Bank()
    ask(bank, Recovery.MANUAL)
    job = job_of(tasks.pay.delay(name))
    held = moves.hold_for

    def hold_then_lose(*given: Any) -> bool:
        kept = held(*given)
        Job.objects.filter(pk=job.pk).update(fence=99)
        return kept

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(moves, "hold_for", hold_then_lose)
        deliver(job)
    assert (bank.calls, Effect.objects.get(job=job).state) == ([], "prepared")


def test_evidence_is_welcome_from_an_attempt_that_lost_its_job(name: str) -> None:
    """A late 2xx confirms the effect, whoever holds the job; nothing un-confirms it."""
    bank = Bank()
    ask(bank, Recovery.MANUAL)
    job = job_of(tasks.pay.delay(name))
    bank.after = lambda: Job.objects.filter(pk=job.pk).update(fence=99) and None
    deliver(job)
    effect = Effect.objects.get(job=job)
    assert effect.state == "confirmed"
    assert not moves.not_applied("default", effect.pk)


def test_the_key_outlives_the_job(name: str) -> None:
    """After a purge the same business key gives the provider the same key."""
    bank = Bank(honours_keys=True)
    ask(bank, Recovery.KEYED)
    for _ in range(2):
        job = job_of(tasks.pay.delay(name))
        deliver(job)
        Effect.objects.filter(job=job).delete()
        job.delete()
    assert (len(bank.calls), len(bank.applied)) == (2, 1)


def test_an_atomic_body_can_have_no_effect(name: str) -> None:
    """A rollback could not undo it: the call is refused before anything is sent."""
    bank = Bank()
    ask(bank, Recovery.KEYED)
    job = job_of(tasks.wrong_style.delay(name))
    answer = deliver(job)
    assert isinstance(answer.retval, EffectInTransaction) or "EffectInTransaction" in str(
        Job.objects.get(pk=job.pk).error
    )
    assert bank.calls == []
