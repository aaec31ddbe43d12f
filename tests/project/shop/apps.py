"""The app of the test site."""

from django.apps import AppConfig


class ShopConfig(AppConfig):
    """Models and tasks for the tests."""

    name = "tests.project.shop"
    label = "shop"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Here, since workers, the relays they host, and commands all come by."""
        from tests.project.without import take_out_what_the_environment_names

        take_out_what_the_environment_names()
