"""The test site with one lane, which is the one queue that Celery's tests allow."""

from tests.project import settings as site
from tests.project.settings import *  # noqa: F403

DATABASES = {"default": site.DATABASES["default"]}
CELERY_TASK_DEFAULT_QUEUE = "celery"
# The names that the tests' own app has: the relay has to meet its worker.
CELERY_CONTROL_EXCHANGE, CELERY_EVENT_EXCHANGE = "celery", "celeryev"
CELERY_GUARD = {
    **site.CELERY_GUARD,
    "control_queue": "celery",
    "lanes": {"high": {"queue": "high"}, "low": {"queue": "low"}},
}
