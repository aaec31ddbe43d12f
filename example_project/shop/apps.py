"""The shop as a Django app."""

from django.apps import AppConfig


class ShopConfig(AppConfig):
    """Orders, invoices, payments."""

    name = "shop"
    default_auto_field = "django.db.models.BigAutoField"
