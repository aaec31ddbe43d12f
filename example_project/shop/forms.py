"""What an order must say, for the page and for the API alike."""

from django import forms

from shop.models import Order


class OrderForm(forms.ModelForm):  # type: ignore[type-arg]
    """Shop, product, quantity and the customer's mail address."""

    class Meta:
        model = Order
        fields = ("shop", "product", "quantity", "email")
