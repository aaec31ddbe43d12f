"""Talking to the payment provider: one call, and every answer given its meaning."""

from __future__ import annotations

import dataclasses
import json
from http.client import HTTPException
from typing import TYPE_CHECKING
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from django.conf import settings

from celery_guard import Permanent, RetryAfter, Transient

if TYPE_CHECKING:
    from shop.models import Order

BUSY = (429, 503)
NOT_NOW = (408, 409, 425)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """The provider's word that a charge is applied."""

    reference: str
    amount_cents: int


def pay(order: Order, *, key: str) -> Receipt:
    """Charge ``order``; the provider applies one charge per ``key``, however often it is asked.

    :raises Transient: no answer, or one that says nothing: ask again under the same key.
    :raises RetryAfter: the provider wants to be left alone for a while.
    :raises Permanent: the provider refuses this charge.
    """
    try:
        with urlopen(_request(order, key), timeout=settings.PAYMENT_TIMEOUT) as answer:
            return _receipt(answer.read())
    except HTTPError as error:
        raise _verdict(error) from error
    except (OSError, HTTPException, ValueError) as error:
        # The charge may well have been applied: only the same key makes asking again safe.
        raise Transient(f"no usable answer from the payment provider: {error}") from error


def _request(order: Order, key: str) -> Request:
    charge = {"order": order.pk, "amount_cents": order.total_cents, "currency": "EUR"}
    headers = {"Content-Type": "application/json", "Idempotency-Key": key}
    return Request(settings.PAYMENT_URL, json.dumps(charge).encode(), headers, method="POST")


def _receipt(body: bytes) -> Receipt:
    answer = json.loads(body)
    try:
        return Receipt(reference=str(answer["id"]), amount_cents=int(answer["amount_cents"]))
    except (KeyError, TypeError) as error:
        raise ValueError("the answer is not a receipt") from error


def _verdict(error: HTTPError) -> Exception:
    with error:
        said = error.read(200).decode(errors="replace")
    if error.code in BUSY and (wait := error.headers.get("Retry-After", "")).isdigit():
        return RetryAfter(float(wait), said)
    if error.code in NOT_NOW or error.code in BUSY or error.code >= 500:
        return Transient(f"payment provider: {error.code} {said}")
    return Permanent(f"payment provider: {error.code} {said}")
