"""The relay, here and now: what is stored goes to the broker."""

from datetime import timedelta

from celery import Celery
from django.db.models import F
from django.utils import timezone

from celery_guard.jobs.clock import DatabaseNow
from celery_guard.jobs.models import Job
from celery_guard.models import Duty
from celery_guard.relay.duties import registered
from celery_guard.relay.floor import relay_once


def send_all(app: Celery) -> None:
    """Let a relay send every stored message, also those that are not due yet, and do nothing else."""
    Job.objects.filter(due_at__gt=DatabaseNow()).update(due_at=F("created_at"))
    # No duty is due within this call: they would cost more than the sending.
    later = timezone.now() + timedelta(hours=1)
    duties = [Duty(name=duty.name, begun_at=later) for duty in registered()]
    Duty.objects.bulk_create(duties, ignore_conflicts=True)
    relay_once("default", app=app)
    assert not Job.objects.unsent().exists()
