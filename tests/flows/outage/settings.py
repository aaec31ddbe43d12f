"""The test site with two services that bear so many calls a second."""

import os

from tests.project.settings import *  # noqa: F403
from tests.project.settings import CELERY_GUARD

RATE = int(os.environ.get("GUARD_TEST_OUTAGE_RATE", "20"))
"""Calls a second that each of the services takes."""
BURST = 5
SERVICES = ("north", "south")
WINDOW = 64
CELERY_GUARD = {
    **CELERY_GUARD,
    "lanes": {**CELERY_GUARD["lanes"], "medium": {"window": WINDOW}},
    "dependencies": {name: {"rate": f"{RATE}/s", "burst": BURST} for name in SERVICES},
}
