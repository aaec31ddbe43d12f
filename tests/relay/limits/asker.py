"""A process that asks until it may call twice, by the limits as it knows them.

`python -m tests.relay.limits.asker form`, with the settings of the guard in `GUARD_ASKER`.
"""

import json
import os
import sys
import time

import django
from django.test.utils import override_settings

django.setup()

from celery_guard.relay.limits.answers import Granted  # noqa: E402 - Django comes first
from celery_guard.relay.limits.rules import rules_of  # noqa: E402
from tests.relay.limits.stores import ask, store  # noqa: E402


def main(form: str) -> None:
    """Ask every few milliseconds, and say when that was in vain."""
    limits, given = store(form), json.loads(os.environ["GUARD_ASKER"])
    (name,) = given["dependencies"]
    with override_settings(CELERY_GUARD=given):
        for number in range(2):
            while not isinstance(limits.take(rules_of(name), ask(f"j{number}", within=0)), Granted):
                print("refused", flush=True)  # noqa: T201
                time.sleep(0.02)


if __name__ == "__main__":
    main(*sys.argv[1:])
