"""The Celery app of the example shop: ``celery -A site_config worker -Q high``."""

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "site_config.settings")

app = Celery("shop")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
