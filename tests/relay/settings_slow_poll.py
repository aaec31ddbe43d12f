"""The test site with a relay that, unless it is woken, looks once a minute."""

import os

from tests.project.settings import *  # noqa: F403
from tests.project.settings import CELERY_GUARD as GUARD

RELAY = {"poll": 60, "poll_blind": 60, "wake": os.environ["GUARD_TEST_WAKE"]}
CELERY_GUARD = {**GUARD, "relay": {**GUARD["relay"], **RELAY}}
