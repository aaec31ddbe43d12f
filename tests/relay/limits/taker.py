"""A process that takes tokens as a worker would: `python -m tests.relay.limits.taker form name …`.

Prints one JSON line: when it asked for and got each token (the machine's monotonic clock, the same
for all its processes), and how often it was refused.
"""

import json
import sys
import time

import django

django.setup()

from celery_guard.conf import read_settings  # noqa: E402 - Django comes first
from celery_guard.relay.limits.answers import Granted  # noqa: E402
from celery_guard.relay.limits.rules import MICRO, _rules  # noqa: E402
from tests.relay.limits.stores import ask, store  # noqa: E402


def main(form: str, name: str, given: str, count: str, who: str) -> None:
    """Take `count` tokens one after the other, waiting as told."""
    rules = _rules(read_settings({"dependencies": {name: json.loads(given)}})[0].dependencies[name])
    limits = store(form)
    calls, refusals = [], 0
    for number in range(int(count)):
        while True:
            asked = time.monotonic()
            answer = limits.take(rules, ask(f"{who}-{number}"))
            if isinstance(answer, Granted):
                calls.append((asked, time.monotonic()))
                break
            refusals += 1
            time.sleep(answer.wait / MICRO)
    print(json.dumps({"calls": calls, "refusals": refusals}))  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
