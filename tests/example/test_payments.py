"""What every answer of the payment provider means to the job that asked."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from celery_guard import Permanent, RetryAfter, Transient
from demo.provider.faults import Fault, Kind
from shop import payments
from tests.example.callers import Payer

if TYPE_CHECKING:
    from pytest_django.fixtures import SettingsWrapper

    from shop.models import Order

ORDER = cast("Order", SimpleNamespace(pk=17, total_cents=11800))


@pytest.fixture(autouse=True)
def _asks_the_provider(payer: Payer, settings: SettingsWrapper) -> None:
    settings.PAYMENT_URL = f"http://127.0.0.1:{payer.port}/charges"
    settings.PAYMENT_TIMEOUT = 0.3


def test_a_receipt_names_the_charge(payer: Payer) -> None:
    """What is applied is what was owed, and asking again brings the same receipt."""
    receipt = payments.pay(ORDER, key="k1")
    assert receipt.amount_cents == 11800
    assert payments.pay(ORDER, key="k1") == receipt
    assert [order for order, _ in payer.till.charges()] == [17]


@pytest.mark.parametrize(
    ("kind", "verdict"),
    [
        (Kind.LOST, Transient),
        (Kind.FAIL, Transient),
        (Kind.THROTTLE, RetryAfter),
        (Kind.REFUSE, Permanent),
    ],
)
def test_each_answer_has_its_verdict(payer: Payer, kind: Kind, verdict: type[Exception]) -> None:
    """Silence and 5xx may pass, 429 says when, a refusal is final; then one charge is applied."""
    payer.till.expect([Fault(kind=kind, seconds=1)])
    with pytest.raises(verdict):
        payments.pay(ORDER, key="k1")
    payments.pay(ORDER, key="k1")
    assert payer.till.counts()["applied"] == 1


def test_throttling_says_how_long(payer: Payer) -> None:
    """The job comes back when the provider asked it to."""
    payer.till.expect([Fault(kind=Kind.THROTTLE, seconds=7)])
    with pytest.raises(RetryAfter) as caught:
        payments.pay(ORDER, key="k1")
    assert caught.value.seconds == 7


def test_a_provider_that_is_down_may_come_back(payer: Payer) -> None:
    """A refused connection is no answer."""
    payer.program.kill()
    with pytest.raises(Transient):
        payments.pay(ORDER, key="k1")


def test_a_key_used_for_another_charge_is_final(payer: Payer) -> None:
    """422 is the shop's own mistake: asking again can't mend it."""
    payer.charge("k1", order=1)
    with pytest.raises(Permanent):
        payments.pay(ORDER, key="k1")
