"""The Celery app of the contender this process measures, and its one task."""

import os

import django
from django.apps import apps

from benchmarks.contenders import current
from benchmarks.contenders.contender import Contender
from benchmarks.place import here

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "benchmarks.settings")
if not apps.ready:
    django.setup()  # a task's base class may stand on Django models

contender = current() or Contender()
app = contender.make_celery()
app.conf.update(
    broker_url=here().broker_url,
    task_default_queue=here().queue,
    task_ignore_result=True,
    broker_connection_retry_on_startup=True,
    worker_hijack_root_logger=False,
    **contender.celery_settings(),
)


@app.task(name="bench.work", bind=True, **contender.task_options())
def work(self, order_id, kind="noop"):
    contender.run_job(self.request.id, order_id, kind)
