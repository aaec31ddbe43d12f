"""The files that the shop makes: real ones, and the same from the same input."""

from __future__ import annotations

from io import BytesIO
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest
from PIL import Image, UnidentifiedImageError

from shop import invoices, pictures

if TYPE_CHECKING:
    from shop.models import Order

LAMP = SimpleNamespace(name="Brass lamp", price_cents=5900)
ORDER = cast(
    "Order",
    SimpleNamespace(
        pk=17,
        shop=SimpleNamespace(name="Harbour Books"),
        product=LAMP,
        quantity=2,
        email="customer@mail.example",
        total_cents=11800,
    ),
)


def test_an_invoice_is_a_pdf_that_says_what_is_owed() -> None:
    """The file is a PDF with order, customer, goods and amount in it."""
    pdf = invoices.render(ORDER)
    assert pdf.startswith(b"%PDF-")
    assert pdf.rstrip().endswith(b"%%EOF")
    for words in (b"Invoice 17", b"customer@mail.example", b"2 x Brass lamp", b"118.00 EUR"):
        assert words in pdf


def test_two_attempts_draw_the_same_invoice() -> None:
    """A second attempt at the same order makes the same bytes."""
    assert invoices.render(ORDER) == invoices.render(ORDER)


def test_a_thumbnail_is_a_small_picture_of_the_same_shape() -> None:
    """A real picture goes in, a real and smaller one comes out, not squeezed."""
    small = Image.open(BytesIO(pictures.shrink(pictures.draw("Brass lamp"))))
    assert small.format == "PNG"
    assert small.size == pictures.SMALL
    assert small.width * pictures.SIZE[1] == small.height * pictures.SIZE[0]


def test_every_product_has_its_own_picture() -> None:
    """The same name gives the same picture, another name another one."""
    assert pictures.draw("Brass lamp") == pictures.draw("Brass lamp")
    assert pictures.draw("Brass lamp") != pictures.draw("Tin kettle")


def test_what_is_no_picture_is_an_error() -> None:
    """Rubbish is refused, not stored."""
    with pytest.raises(UnidentifiedImageError):
        pictures.shrink(b"not a picture")
