"""Request-like transaction: one business INSERT and `jobs` enqueued jobs."""

from collections.abc import Callable, Mapping
from itertools import count
from typing import Any

from benchmarks.clocks import timed_loop
from benchmarks.contenders.contender import Contender

MAIN, HIGHER = "tx_per_s", True
DEFAULTS = {"jobs": 1, "seconds": 0.15}
WARM_UP = 20


def prepare(contender: Contender, params: Mapping[str, Any]) -> Callable[[], dict[str, float]]:
    """Warm the contender up and return the slice."""
    contender.setup()
    contender.reset()
    request = requests(contender, params["jobs"])
    for _ in range(WARM_UP):
        request()
    return lambda: timed_loop(request, params["seconds"]).metrics("tx_per_s")


def requests(contender: Contender, jobs: int) -> Callable[[], None]:
    """Return a call that makes one request after the other."""
    from django.db import transaction

    from benchmarks.shop.models import Order

    numbers = count()

    def request() -> None:
        number = next(numbers)
        for order_id in range(number * jobs, (number + 1) * jobs):
            contender.ask(order_id)
        with transaction.atomic():
            Order.objects.create(customer=number, total=42)
            contender.enqueue_in_tx(range(number * jobs, (number + 1) * jobs))

    return request
