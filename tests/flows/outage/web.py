"""``python -m tests.flows.outage.web COUNT``: a web process that asks for so many calls at once.

Then, and until it is killed, it asks twice a second for something that calls nobody.
"""

import itertools
import sys
import time

import django

AT_ONCE = 500


def main(count: int) -> None:
    """Ask."""
    django.setup()
    from celery_guard import enqueue_many
    from tests.flows.outage.services import call_north, call_south, pass_by
    from tests.project.shop.witness import leave_trace

    calls = itertools.islice(itertools.cycle([call_north, call_south]), count)
    while some := list(itertools.islice(calls, AT_ONCE)):
        enqueue_many([call.s() for call in some])
    leave_trace("piled-up")
    while True:
        pass_by.delay()
        time.sleep(0.5)


if __name__ == "__main__":
    main(int(sys.argv[1]))
