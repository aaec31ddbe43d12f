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
    # Some of their chords have a thousand members, and a chord is one message until it starts.
    "outbox": {"payload_limit": 4 * 1024 * 1024},
    "lanes": {"high": {"queue": "high"}, "low": {"queue": "low"}},
}
