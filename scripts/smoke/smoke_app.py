"""Its Celery app."""

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "smoke_settings")

app = Celery("smoke", include=["smoke_tasks"])
app.config_from_object("django.conf:settings", namespace="CELERY")
