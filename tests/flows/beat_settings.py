"""The test site with django-celery-beat."""

from tests.project.settings import *  # noqa: F403
from tests.project.settings import INSTALLED_APPS

INSTALLED_APPS = [*INSTALLED_APPS, "django_celery_beat"]
CELERY_BEAT_SCHEDULE = {
    "twice": {"task": "tests.project.shop.tasks.add", "schedule": 0.5, "args": (1, 2)}
}
