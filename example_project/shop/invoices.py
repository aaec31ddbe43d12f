"""Drawing an invoice."""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING

from reportlab.lib.pagesizes import A5
from reportlab.lib.units import mm
from reportlab.pdfgen.canvas import Canvas

if TYPE_CHECKING:
    from shop.models import Order


def money(cents: int) -> str:
    """``cents`` as an amount to read."""
    return f"{cents // 100}.{cents % 100:02d} EUR"


def render(order: Order) -> bytes:
    """The invoice of ``order`` as a PDF; equal orders give equal bytes."""
    page = BytesIO()
    # Without ``invariant`` the time of drawing is in the file, and two attempts would differ.
    canvas = Canvas(page, pagesize=A5, invariant=True, pageCompression=0)
    canvas.setTitle(f"Invoice {order.pk}")
    _heading(canvas, order)
    _lines(canvas, order)
    canvas.save()
    return page.getvalue()


def _heading(canvas: Canvas, order: Order) -> None:
    top = A5[1] - 20 * mm
    canvas.setFont("Helvetica-Bold", 18)
    canvas.drawString(15 * mm, top, f"Invoice {order.pk}")
    canvas.setFont("Helvetica", 10)
    canvas.drawString(15 * mm, top - 8 * mm, order.shop.name)
    canvas.drawString(15 * mm, top - 13 * mm, f"for {order.email}")
    canvas.line(15 * mm, top - 18 * mm, A5[0] - 15 * mm, top - 18 * mm)


def _lines(canvas: Canvas, order: Order) -> None:
    right, line = A5[0] - 15 * mm, A5[1] - 50 * mm
    canvas.drawString(15 * mm, line, f"{order.quantity} x {order.product.name}")
    canvas.drawRightString(right, line, money(order.total_cents))
    canvas.setFont("Helvetica-Bold", 12)
    canvas.drawString(15 * mm, line - 12 * mm, "Total")
    canvas.drawRightString(right, line - 12 * mm, money(order.total_cents))
