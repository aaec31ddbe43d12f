"""What a provider answers outweighs what a person has said of the call meanwhile."""

from __future__ import annotations

import time
from typing import Any

import pytest

from celery_guard.models import Effect, Job
from celery_guard.settle.reconcile import decide
from celery_guard.settle.states import OPEN, Recovery
from tests.kit.told import told
from tests.run.delivery import deliver, job_of
from tests.run.marks import on_database
from tests.settle import tasks
from tests.settle.provider import Bank, raising
from tests.settle.test_effects import again, ask

pytestmark = [*on_database, pytest.mark.mariadb]


@pytest.fixture(autouse=True)
def _forget() -> Any:
    yield
    tasks.wanted.clear()


def decided(*, applied: bool) -> None:
    """A person decides about the call that is under way."""
    effect = Effect.objects.get(state__in=OPEN)
    assert decide("default", effect.pk, applied=applied, by="eva", reason="not in the console")


@pytest.mark.parametrize("recovery", [Recovery.MANUAL, Recovery.RECONCILABLE])
def test_a_call_that_is_answered_after_all_is_not_made_again(recovery: Recovery) -> None:
    """Said not to have happened while it was under way: its answer is kept, so a retry skips it."""
    bank = Bank()
    ask(bank, recovery)
    job = job_of(tasks.mails.delay(str(time.time_ns()), 2))

    def after() -> None:
        if len(bank.calls) == 1:
            decided(applied=False)
            bank.before = raising(ConnectionRefusedError())

    bank.after = after
    with told() as heard:
        deliver(job)
    assert [e.facts["kept"] for e in heard if e.name == "settle.contradicted"] == [True]
    bank.before = lambda: None
    again(job)
    assert Job.objects.get(pk=job.pk).state == "succeeded"
    assert [sending.item for sending in bank.calls] == ["0", "1", "1"]
    assert len(bank.applied) == 2
