"""What a person sees: one page with a form and the latest orders, and the files behind it."""

from django.db.models import Prefetch
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_GET, require_http_methods

from shop.forms import OrderForm
from shop.models import Invoice, Order, Product, Thumbnail
from shop.orders import place

LATEST = 12


@require_http_methods(["GET", "HEAD", "POST"])
def home(request: HttpRequest) -> HttpResponse:
    """Order something, and watch what becomes of it."""
    form = OrderForm(request.POST or None, initial={"shop": 1, "quantity": 1})
    if request.method == "POST" and form.is_valid():
        placed = place(form.save(commit=False))
        return redirect(f"{reverse('home')}?placed={placed.order.pk}")
    orders = _latest()
    products = Product.objects.defer("picture").order_by("pk")
    page = render(request, "shop/home.html", {"form": form, "orders": orders, "products": products})
    # Only while the visitor's own order is on its way: a reload empties a form half filled in.
    if any(str(order.pk) == request.GET.get("placed") and _open(order) for order in orders):
        page.headers["Refresh"] = "1"
    return page


@require_GET
def invoice_file(request: HttpRequest, order_id: int) -> HttpResponse:
    """The invoice as PDF."""
    invoice = Invoice.objects.filter(order=order_id).first()
    if invoice is None:
        raise Http404("no invoice yet")
    return HttpResponse(bytes(invoice.pdf), content_type="application/pdf")


@require_GET
def thumbnail_file(request: HttpRequest, product_id: int) -> HttpResponse:
    """The small picture of a product."""
    small = Thumbnail.objects.filter(product=product_id).order_by("pk").last()
    if small is None:
        raise Http404("no thumbnail yet")
    return HttpResponse(bytes(small.data), content_type="image/png")


def _latest() -> list[Order]:
    invoices = Prefetch("invoices", Invoice.objects.defer("pdf"))
    orders = Order.objects.select_related("product").prefetch_related(invoices, "payments")
    return list(orders.order_by("-pk")[:LATEST])


def _open(order: Order) -> bool:
    return not order.payments.all() or not any(bill.mailed for bill in order.invoices.all())
