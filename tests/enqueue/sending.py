"""The relay, here and now: what is stored goes to the broker."""

from celery import Celery
from django.db.models import F

from celery_guard.jobs.clock import DatabaseNow
from celery_guard.jobs.models import Job
from celery_guard.relay.floor import relay_once


def send_all(app: Celery) -> None:
    """Let a relay send every stored message, also those that are not due yet."""
    Job.objects.filter(due_at__gt=DatabaseNow()).update(due_at=F("created_at"))
    relay_once("default", app=app)
    assert not Job.objects.unsent().exists()
