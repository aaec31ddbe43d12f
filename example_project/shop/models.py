"""What the shop remembers."""

import uuid

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models.functions import Now


class Shop(models.Model):
    """One seller of the site; the tenant of its jobs."""

    name = models.CharField(max_length=80, unique=True)

    def __str__(self) -> str:
        return self.name


class Product(models.Model):
    """Something to buy."""

    name = models.CharField(max_length=80, unique=True)
    price_cents = models.PositiveIntegerField()
    picture = models.BinaryField()
    picture_digest = models.CharField(max_length=64)

    def __str__(self) -> str:
        return self.name


class Thumbnail(models.Model):
    """A product's picture, small."""

    product = models.ForeignKey(Product, on_delete=models.CASCADE, related_name="thumbnails")
    picture_digest = models.CharField(max_length=64)
    data = models.BinaryField()

    def __str__(self) -> str:
        return f"thumbnail of {self.product}"


class SearchRow(models.Model):
    """What the search knows of a product; rebuilt after every order."""

    product = models.OneToOneField(Product, on_delete=models.CASCADE, related_name="search_row")
    text = models.TextField()
    ordered = models.PositiveIntegerField()

    def __str__(self) -> str:
        return self.text


class Order(models.Model):
    """What a customer asked for; ``reference`` is the client's name for the request."""

    reference = models.CharField(max_length=80, unique=True, default=uuid.uuid4)
    shop = models.ForeignKey(Shop, on_delete=models.PROTECT)
    product = models.ForeignKey(Product, on_delete=models.PROTECT)
    quantity = models.PositiveIntegerField(
        default=1, validators=[MinValueValidator(1), MaxValueValidator(99)]
    )
    email = models.EmailField()
    created = models.DateTimeField(db_default=Now())

    def __str__(self) -> str:
        return f"order {self.pk}"

    @property
    def total_cents(self) -> int:
        """Price of the whole order, in cents."""
        return self.quantity * self.product.price_cents


class Invoice(models.Model):
    """The bill of an order, as the PDF that was sent.

    The order is not unique here, nor in :class:`Payment`, and on purpose: one row an order is the
    guard's doing, and the demo could not count a second one that the table had refused.
    """

    order = models.ForeignKey(Order, on_delete=models.PROTECT, related_name="invoices")
    pdf = models.BinaryField()
    created = models.DateTimeField(db_default=Now())
    mailed = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"invoice of {self.order}"


class Payment(models.Model):
    """A charge that the provider confirmed, under the provider's own reference."""

    order = models.ForeignKey(Order, on_delete=models.PROTECT, related_name="payments")
    reference = models.CharField(max_length=64)
    amount_cents = models.PositiveIntegerField()
    created = models.DateTimeField(db_default=Now())

    def __str__(self) -> str:
        return f"payment of {self.order}"
