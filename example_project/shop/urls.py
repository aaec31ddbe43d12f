"""Addresses of the shop."""

from django.urls import path

from shop import pages, views

urlpatterns = [
    path("", pages.home, name="home"),
    path("orders/", views.accept_order, name="orders"),
    path("orders/<int:order_id>/", views.order_state, name="order"),
    path("orders/<int:order_id>/invoice.pdf", pages.invoice_file, name="invoice"),
    path("products/<int:product_id>/thumbnail.png", pages.thumbnail_file, name="thumbnail"),
]
