"""Taking an order: the row and all that follows from it, in one transaction."""

import dataclasses
import time
import uuid
from collections.abc import Mapping

from django.db import transaction

from shop.models import Order, Product
from shop.tasks import charge, issue_invoice, make_thumbnail, refresh_search


class ReferenceTakenError(Exception):
    """The client used this reference for another order."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """An order that is committed, with the public ids of its jobs."""

    order: Order
    jobs: Mapping[str, str]
    committed_at: float


def place(wanted: Order, reference: str = "") -> Placed:
    """Commit ``wanted`` and its jobs; the same ``reference`` again gives the same order and jobs.

    :param wanted: an unsaved, validated order.
    :param reference: the client's name for this request; empty: every call is a new order.
    :raises ReferenceTakenError: where ``reference`` names an order for something else.
    """
    with transaction.atomic():
        order, created = Order.objects.get_or_create(
            reference=reference or str(uuid.uuid4()), defaults=_asked(wanted)
        )
        if _asked(order) != _asked(wanted):
            raise ReferenceTakenError
        jobs = {
            "invoice": issue_invoice.delay(order.pk, order.shop_id),
            "charge": charge.delay(order.pk),
        }
        if created:
            jobs["search"] = refresh_search.delay(order.product_id)
    # Wall clock right after COMMIT: what the demo measures every effect against.
    committed_at = time.time()
    ids = {name: str(job.public_id) for name, job in jobs.items()}
    return Placed(order=order, jobs=ids, committed_at=committed_at)


def product_changed(product: Product) -> None:
    """Have the search row and the thumbnail of ``product`` made anew.

    Call it in the transaction that saves the product.
    """
    refresh_search.delay(product.pk)
    make_thumbnail.delay(product.pk, product.picture_digest)


def _asked(order: Order) -> dict[str, object]:
    return {
        "shop_id": order.shop_id,
        "product_id": order.product_id,
        "quantity": order.quantity,
        "email": order.email,
    }
