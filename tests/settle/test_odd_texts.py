"""Effects keep their promises whatever texts bodies and providers use."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import pytest

from celery_guard import Permanent
from celery_guard.models import Effect
from celery_guard.settle.reconcile import decide, reopen
from celery_guard.settle.states import Recovery
from tests.run.delivery import deliver, job_of
from tests.run.marks import on_database
from tests.settle import tasks
from tests.settle.provider import Bank, raising
from tests.settle.test_effects import again, ask

pytestmark = [*on_database, pytest.mark.mariadb]


class Unspeakable(ConnectionError):
    """An error whose own text can't be made."""

    def __str__(self) -> str:
        raise ZeroDivisionError


ODD = [ConnectionError("half \udcff a text"), ConnectionError("a\x00b"), Unspeakable()]


@pytest.fixture
def name() -> str:
    """A business key of the test's own."""
    return str(time.time_ns())


@pytest.fixture(autouse=True)
def _forget() -> Any:
    yield
    tasks.wanted.clear()


@pytest.mark.parametrize("error", ODD, ids=["half", "nul", "unspeakable"])
def test_a_call_that_fails_with_an_odd_text_is_still_a_question(
    name: str, error: Exception
) -> None:
    """What no database stores is replaced: the effect is unknown, and the next attempt asks."""
    bank = Bank()
    ask(bank, Recovery.KEYED)
    bank.after = raising(error)
    job = job_of(tasks.pay.delay(name))
    deliver(job)
    job.refresh_from_db()
    assert (job.state, job.reason) == ("waiting", "retry")
    assert Effect.objects.get(job=job).state == "unknown"
    bank.after = lambda: None
    again(job)
    job.refresh_from_db()
    assert job.state == "succeeded"


def test_a_final_no_with_an_odd_text_is_a_no(name: str) -> None:
    """The provider has answered; the text of its answer does not make that a question."""
    bank = Bank()
    ask(bank, Recovery.MANUAL)
    bank.before = raising(Permanent("card \udcff\x00 declined"))
    job = job_of(tasks.pay.delay(name))
    deliver(job)
    job.refresh_from_db()
    assert job.state == "failed"
    assert Effect.objects.get(job=job).state == "rejected"


def test_a_look_up_that_fails_with_an_odd_text_has_not_answered(name: str) -> None:
    """The question stays open, to be asked again later."""
    bank = Bank()
    ask(bank, Recovery.RECONCILABLE)
    bank.after = raising(TimeoutError())
    job = job_of(tasks.pay.delay(name))
    deliver(job)
    tasks.wanted["find"] = lambda sending: raising(ODD[1])()
    job.refresh_from_db()
    Effect.objects.filter(job=job).update(state="unknown")
    type(job).objects.filter(pk=job.pk).update(state="waiting", owner=None, running_key=None)
    again(job)
    job.refresh_from_db()
    assert job.state == "reconciling"
    assert Effect.objects.get(job=job).looks == 0


def sent_with_one_answer_lost(name: str, items: Sequence[str]) -> Bank:
    """The bank of a job with an effect for each of two ``items``; its second call had no answer at first."""
    bank = Bank(honours_keys=True)
    ask(bank, Recovery.KEYED)
    tasks.wanted["items"] = items
    job = job_of(tasks.letters.delay(name))
    bank.after = lambda: raising(ConnectionError())() if len(bank.calls) == 2 else None
    deliver(job)
    bank.after = lambda: None
    again(job)
    job.refresh_from_db()
    assert job.state == "succeeded"
    return bank


@pytest.mark.parametrize("items", [("Bob", "bob"), ("e", "é"), ("bob", "bob ")])
def test_items_that_the_database_takes_for_one_are_two(name: str, items: tuple[str, str]) -> None:
    """Each is done once, also where texts are compared without regard to case or accents."""
    bank = sent_with_one_answer_lost(name, items)
    assert len(bank.applied) == 2
    assert [sending.item for sending in bank.calls] == [*items, items[1]]


@pytest.mark.parametrize("ends", ["ab", "\x00\x01", "\udcfe\udcff"])
@pytest.mark.parametrize("beginning", ["", "x" * 200])
def test_items_that_no_row_holds_are_known_by_their_hash(
    name: str, beginning: str, ends: str
) -> None:
    """They are done once each, too, and not again in the next attempt."""
    bank = sent_with_one_answer_lost(name, [f"{beginning}{end}" for end in ends])
    assert (len(bank.calls), len(bank.applied)) == (3, 2)


@pytest.mark.parametrize("wrong", ["", "n" * 101, "a\x00b"])
def test_a_name_that_no_row_holds_is_refused_before_anything_is_sent(name: str, wrong: str) -> None:
    """Names are the program's own: one that can't be kept is a mistake in it."""
    bank = Bank()
    ask(bank, Recovery.KEYED)
    tasks.wanted.update(items=["one"], name=wrong)
    job = job_of(tasks.letters.delay(name))
    deliver(job)
    job.refresh_from_db()
    assert job.state == "failed"
    assert "the name must be text of 1 to 100 characters" in job.error
    assert not bank.calls


def test_words_from_outside_are_kept_as_far_as_a_database_can(name: str) -> None:
    """A webhook's key that cannot be anybody's reopens nothing; its name and reason may be odd."""
    bank = Bank(honours_keys=True)
    ask(bank, Recovery.KEYED)
    job = job_of(tasks.pay.delay(name))
    deliver(job)
    effect = Effect.objects.get(job=job)
    assert not reopen("default", "a\x00b", by="hook", reason="bounced")
    assert reopen("default", effect.provider_key, by="hook\x00" * 90, reason="bounced\udcff")
    assert decide("default", effect.pk, applied=True, by="\x00me", reason="seen\x00")
    effect.refresh_from_db()
    assert (effect.settled_by, effect.note) == ("\ufffdme", "seen\ufffd")
