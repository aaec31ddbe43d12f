"""``python -m tests.enqueue.admission.asker CAP [and wait]``: asks twice as often as there
is room and says how often it got a place; ``and wait`` keeps the places until it is killed.
"""

import signal
import sys

import django


def main() -> None:
    """Ask."""
    django.setup()
    from django.conf import settings

    from celery_guard.conf import guard_settings

    guard = settings.CELERY_GUARD
    limits = {**guard["lanes"], "medium": {"admission": {"depth": int(sys.argv[1])}}}
    hold = 5 if "and wait" in sys.argv else 30
    settings.CELERY_GUARD = {**guard, "lanes": limits, "admission": {"hold": hold}}
    guard_settings.cache_clear()
    from tests.enqueue.admission.asking import granted
    from tests.enqueue.admission.tasks import work

    print(sum(granted(work, n) for n in range(2 * int(sys.argv[1]))), flush=True)  # noqa: T201
    if "and wait" in sys.argv:
        signal.pause()


if __name__ == "__main__":
    main()
