"""``python -m tests.enqueue.webprocess``: a web process that takes requests, watched from inside.

Waits for a line on standard input, asks for work in every way in a transaction, commits, and
prints what it asked for and to which addresses the thread that asked opened or used a socket.
"""

import json
import statistics
import sys
import time
import uuid

import django

from tests.enqueue.watch import Watch


def ask_in_every_way() -> int:
    """One transaction that asks for ten messages, in the ways that touch the network in Celery."""
    from celery import chain, chord, group
    from django.db import transaction

    from tests.enqueue.tasks import app, form_task, high, keyed, plain, unkeyed

    add, total = form_task("add"), form_task("total")
    with transaction.atomic():
        keyed.delay(uuid.uuid4())
        high.apply_async((str(uuid.uuid4()),), expires=3600, ignore_result=False)
        app().send_task(unkeyed.name, ("by name",))
        unkeyed.apply_async(("later",), countdown=0.001, link=unkeyed.s())
        group(add.s(1, 1), add.s(2, 2)).delay()
        chain(add.s(1, 1), group(add.s(1), add.s(2))).delay()
        chord([add.s(1, 1), add.s(2, 2)], total.s()).delay()
        add.starmap([(1, 2)]).delay()
        plain.delay("kept too")
    return 10


def timed_calls(count: int) -> float:
    """The median of a call with its commit, in milliseconds."""
    from django.db import transaction

    from tests.enqueue.tasks import unkeyed

    taken = []
    for n in range(count):
        began = time.perf_counter()
        with transaction.atomic():
            unkeyed.delay(n)
        taken.append((time.perf_counter() - began) * 1000)
    return statistics.median(taken)


def main() -> None:
    """Get ready, say so, and take one request at each line of input."""
    django.setup()
    from django.conf import settings

    settings.CELERY_GUARD = {**settings.CELERY_GUARD, "outbox": {"capture": "all"}}
    if "connected" in sys.argv:
        _connect()
    print("ready", flush=True)  # noqa: T201
    with Watch() as watch:
        for _ in sys.stdin:
            asked = ask_in_every_way()
            told = {"asked": asked, "addresses": sorted(watch.addresses), "ms": timed_calls(20)}
            print(json.dumps(told), flush=True)  # noqa: T201


def _connect() -> None:
    # A process that has published and waited before holds connections, which then go silent.
    from tests.enqueue.tasks import app, plain

    result = plain.delay("before")
    result.backend.result_consumer.consume_from(result.id)
    assert app().pool is not None


if __name__ == "__main__":
    main()
