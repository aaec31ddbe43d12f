"""The test site with workers that scale themselves, and no measurement but the tests' own."""

from tests.project.settings import *  # noqa: F403
from tests.project.settings import CELERY_GUARD as USUAL

CELERY_WORKER_AUTOSCALER = "celery_guard.watch.autoscaler:Autoscaler"
CELERY_GUARD = {
    **USUAL,
    "snapshot": {"every": 600},
    "scale": {"concurrency": 1, "service_rate": 0.01, "window": 0, "tolerance": 0},
}
