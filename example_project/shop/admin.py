"""Orders and their effects in the admin; nothing here is edited by hand."""

from django.contrib import admin

from shop.models import Invoice, Order, Payment, Product, SearchRow, Shop

admin.site.register(Shop)


@admin.register(Product)
class ProductAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """Products without their picture data."""

    list_display = ("name", "price_cents")
    readonly_fields = ("picture_digest",)


@admin.register(Order)
class OrderAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """Orders, newest first."""

    list_display = ("id", "created", "product", "quantity", "email")
    list_select_related = ("product",)
    ordering = ("-id",)


@admin.register(Invoice)
class InvoiceAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """Invoices without the file."""

    list_display = ("id", "order", "created", "mailed")
    list_select_related = ("order",)
    readonly_fields = ("order", "created", "mailed")
    exclude = ("pdf",)


@admin.register(Payment)
class PaymentAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """Charges that the provider confirmed."""

    list_display = ("id", "order", "reference", "amount_cents", "created")
    list_select_related = ("order",)
    readonly_fields = ("order", "reference", "amount_cents", "created")


@admin.register(SearchRow)
class SearchRowAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """The search table."""

    list_display = ("text", "ordered")
