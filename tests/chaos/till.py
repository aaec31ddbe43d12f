"""Places orders as a web process would: `python -m tests.chaos.till RATE`. It may be killed too."""

import contextlib
import random
import sys
import time
from collections.abc import Iterator

import django

django.setup()

from django.db import transaction  # noqa: E402

from celery_guard.models import Job  # noqa: E402
from tests.chaos.tasks import KINDS  # noqa: E402
from tests.project.shop.models import Order  # noqa: E402

MOST_OPEN = 60
"""Open jobs at which the till waits: the load is steady, the backlog short."""


class Undone(Exception):
    """Rolls an order back."""


def place(kind: str) -> None:
    """The order and the request for its jobs, in one transaction."""
    with transaction.atomic():
        order = Order.objects.create(customer=kind)
        KINDS[kind][0](order.pk)
        if kind == "ghost":
            raise Undone


def kinds() -> Iterator[str]:
    """The kinds of orders in chance order; of each hundred as many as it has in ``KINDS``."""
    deck = [name for name, (_, weight) in KINDS.items() for _ in range(weight)]
    while True:
        random.shuffle(deck)
        yield from deck


def main(rate: float) -> None:
    """Place orders until killed, at a steady rate."""
    due = time.monotonic()
    for placed, kind in enumerate(kinds()):
        while placed % 10 == 0 and Job.objects.filter(due_at__isnull=False).count() > MOST_OPEN:
            time.sleep(0.2)
        with contextlib.suppress(Undone):
            place(kind)
        # What was missed in a jam is not made up for.
        due = max(due + 1 / rate, time.monotonic() - 1)
        time.sleep(max(0.0, due - time.monotonic()))


if __name__ == "__main__":
    main(float(sys.argv[1]))
