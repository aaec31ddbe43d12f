"""The test site with the guard's own metrics page."""

from tests.project.settings import *  # noqa: F403
from tests.project.settings import CELERY_GUARD

ROOT_URLCONF = "tests.watch.urls"
CELERY_GUARD = {**CELERY_GUARD, "metrics_token": "x"}
