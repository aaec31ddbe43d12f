"""Sending an invoice by mail."""

from django.core.mail import EmailMessage

from shop.models import Invoice


def send(invoice: Invoice, *, key: str) -> None:
    """Send ``invoice`` under a Message-ID made from ``key``.

    A mail can go out just before its sender dies, and SMTP has no way to ask afterwards. The same
    Message-ID on the second copy lets mail stores drop it.

    :raises OSError: the server could not be reached or did not take it (smtplib's errors too).
    """
    order = invoice.order
    message = EmailMessage(
        subject=f"Your invoice {order.pk}",
        body=f"Thank you for ordering {order.product.name}. Your invoice is attached.",
        to=[order.email],
        headers={"Message-ID": f"<{key}@shop.example>", "X-Order": str(order.pk)},
    )
    message.attach(f"invoice-{order.pk}.pdf", bytes(invoice.pdf), "application/pdf")
    message.send()
