"""``manage.py open_shop``: migrate, fill the shelves, and make an administrator where asked."""

import os

from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.core.management.base import BaseCommand

from shop import stock


class Command(BaseCommand):
    """Makes an empty database into an open shop; running it again changes nothing."""

    help = (
        "Migrate, fill the shelves; with SHOP_ADMIN_PASSWORD in the environment also make the "
        "superuser 'admin' with that password."
    )

    def handle(self, *args: object, **options: object) -> None:
        """Open the shop."""
        call_command("migrate", verbosity=0, interactive=False)
        stock.fill()
        if password := os.environ.get("SHOP_ADMIN_PASSWORD"):
            _administrator(password)
        self.stdout.write("the shop is open")


def _administrator(password: str) -> None:
    user, _ = get_user_model().objects.get_or_create(
        username="admin", defaults={"is_staff": True, "is_superuser": True}
    )
    user.set_password(password)
    user.save()
