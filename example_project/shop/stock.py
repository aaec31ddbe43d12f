"""What the shop sells: put on the shelves once, with a real picture each."""

import hashlib

from django.db import transaction

from shop import pictures
from shop.models import Product, Shop
from shop.orders import product_changed

SHOPS = ("Northern Lights", "Harbour Books", "Little Workshop")
GOODS = {
    "Brass lamp": 5900,
    "Canvas bag": 2400,
    "Field notebook": 950,
    "Glass carafe": 3150,
    "Oak stool": 12900,
    "Pocket radio": 4450,
    "Tin kettle": 2790,
    "Wool blanket": 8600,
}


def fill() -> None:
    """Make the shops and products that are not there yet, and have their thumbnails made."""
    for name in SHOPS:
        Shop.objects.get_or_create(name=name)
    for name, price_cents in GOODS.items():
        with transaction.atomic():
            _shelve(name, price_cents)


def _shelve(name: str, price_cents: int) -> None:
    if Product.objects.filter(name=name).exists():
        return
    picture = pictures.draw(name)
    product = Product.objects.create(
        name=name,
        price_cents=price_cents,
        picture=picture,
        picture_digest=hashlib.sha256(picture).hexdigest(),
    )
    product_changed(product)
