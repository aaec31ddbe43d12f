"""The Celery app of the test site; tells the tests when a worker is ready."""

import os
from pathlib import Path

from celery import Celery
from celery.signals import worker_ready

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.project.settings")

app = Celery("tests.project")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
app.autodiscover_tasks(related_name="django_tasks")


@worker_ready.connect(weak=False)
def _say_ready(**_: object) -> None:
    ready_file = os.environ.get("GUARD_TEST_READY_FILE")
    if ready_file:
        Path(ready_file).touch()
