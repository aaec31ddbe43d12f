"""The API: ``POST /orders/`` and ``GET /orders/<id>/``."""

import json

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_GET, require_POST

from shop.forms import OrderForm
from shop.models import Order
from shop.orders import Placed, ReferenceTakenError, place


@csrf_exempt
@require_POST
def accept_order(request: HttpRequest) -> HttpResponse:
    """Take an order given as JSON; 202 with its jobs, 400 with every fault.

    An ``Idempotency-Key`` header makes it safe to send the same order again.
    """
    form = OrderForm(_said(request.body))
    if not form.is_valid():
        return JsonResponse({"errors": form.errors}, status=400)
    reference = request.headers.get("Idempotency-Key", "")
    if len(reference) > 80:
        return JsonResponse({"errors": {"Idempotency-Key": ["at most 80 characters"]}}, status=400)
    try:
        return _accepted(place(form.save(commit=False), reference))
    except ReferenceTakenError:
        return JsonResponse({"errors": {"Idempotency-Key": ["used for another order"]}}, status=409)


@require_GET
def order_state(request: HttpRequest, order_id: int) -> HttpResponse:
    """How far an order is."""
    order = get_object_or_404(Order, pk=order_id)
    invoice, payment = order.invoices.first(), order.payments.first()
    return JsonResponse(
        {
            "order": order.pk,
            "total_cents": order.total_cents,
            "invoice": reverse("invoice", args=[order.pk]) if invoice else None,
            "mailed": bool(invoice and invoice.mailed),
            "payment": payment.reference if payment else None,
        }
    )


def _said(body: bytes) -> dict[str, object]:
    try:
        said = json.loads(body)
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


def _accepted(placed: Placed) -> HttpResponse:
    answer = {
        "order": placed.order.pk,
        "jobs": placed.jobs,
        "committed_at": placed.committed_at,
    }
    where = reverse("order", args=[placed.order.pk])
    return JsonResponse(answer, status=202, headers={"Location": where})
