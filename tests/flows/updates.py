"""``python -m tests.flows.updates NAME COUNT KEY…``: a web process that saves things and asks.

It asks the task that ``GUARD_TEST_ASK`` names in ``tests.run.tasks``, else ``refresh``.

Each update is one row and one request in one transaction; every fifth one is rolled back. It
begins when the gate is opened, so that all such processes begin together.
"""

import itertools
import os
import sys

import django


def main(name: str, count: int, keys: list[str]) -> None:
    """Make ``count`` updates, round the keys."""
    django.setup()
    from django.db import transaction

    from tests.project.shop.models import Mark
    from tests.project.shop.witness import leave_trace, wait_until_open
    from tests.run import tasks

    ask = getattr(tasks, os.environ.get("GUARD_TEST_ASK", "refresh"))
    leave_trace("ready", name)
    wait_until_open("updates")
    for number, key in zip(range(count), itertools.cycle(keys), strict=False):
        # Of each key, however many there are.
        undone = (number + number // len(keys)) % 5 == 4
        with transaction.atomic():
            Mark.objects.create(name=f"update-{key}", value="undone" if undone else name)
            ask.delay(key, f"{name} {number}{' undone' * undone}")
            transaction.set_rollback(undone)
    leave_trace("done", name)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3:])
