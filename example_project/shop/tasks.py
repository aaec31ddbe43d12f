"""The shop's jobs: each does one thing, once, whatever dies in between."""

from smtplib import SMTPRecipientsRefused, SMTPSenderRefused

from django.db.models.functions import Now

from celery_guard import UNKEYED, current_job, guarded_task
from shop import invoices, mail, payments, pictures
from shop.models import Invoice, Order, Payment, Product, SearchRow, Thumbnail


@guarded_task(key="invoice:{order_id}", lane="high", tenant="{shop_id}")
def issue_invoice(order_id: int, shop_id: int) -> int:
    """Draw the invoice and have it mailed; both are committed, or neither."""
    order = Order.objects.select_related("product", "shop").get(pk=order_id, shop=shop_id)
    invoice = Invoice.objects.create(order=order, pdf=invoices.render(order))
    mail_invoice.delay(order_id)
    return invoice.pk


@guarded_task(key="charge:{order_id}", lane="high", atomic=False)
def charge(order_id: int) -> None:
    """Have the provider charge the order, and write down its answer."""
    job = current_job()
    order = Order.objects.select_related("product").get(pk=order_id)
    receipt = payments.pay(order, key=job.provider_key("charge"))
    with job.finish():
        Payment.objects.create(
            order=order, reference=receipt.reference, amount_cents=receipt.amount_cents
        )


@guarded_task(
    key="mail:{order_id}",
    lane="medium",
    atomic=False,
    transient=(OSError,),
    permanent=(SMTPRecipientsRefused, SMTPSenderRefused),
)
def mail_invoice(order_id: int) -> None:
    """Mail the invoice to the customer."""
    job = current_job()
    invoice = Invoice.objects.select_related("order__product").get(order=order_id)
    mail.send(invoice, key=job.provider_key("mail"))
    with job.finish():
        Invoice.objects.filter(pk=invoice.pk).update(mailed=Now())


@guarded_task(key=UNKEYED, lane="low")
def refresh_search(product_id: int) -> None:
    """Rebuild what the search knows of the product; running it again changes nothing."""
    # Locked first: of two refreshes at once the later one must count after the earlier committed.
    product = Product.objects.select_for_update().get(pk=product_id)
    ordered = Order.objects.filter(product=product).count()
    SearchRow.objects.update_or_create(
        product=product, defaults={"text": product.name.casefold(), "ordered": ordered}
    )


@guarded_task(key="thumbnail:{product_id}:{picture_digest}", lane="low")
def make_thumbnail(product_id: int, picture_digest: str) -> None:
    """Make the small picture of a product; a new picture is a new key."""
    product = Product.objects.get(pk=product_id)
    if product.picture_digest == picture_digest:
        small = pictures.shrink(bytes(product.picture))
        Thumbnail.objects.create(product=product, picture_digest=picture_digest, data=small)
