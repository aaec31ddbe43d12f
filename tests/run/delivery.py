"""Brings a job's message to Celery's tracer in this process, as a worker's child would."""

from typing import Any

from celery import current_app
from celery.app.trace import build_tracer
from kombu.utils import json

from celery_guard.jobs.clock import DatabaseNow
from celery_guard.jobs.named import JOB_HEADER, NamedJob
from celery_guard.models import Job
from celery_guard.outbox.envelope import Envelope


def send(job: Job) -> dict[str, Any]:
    """Mark the job as sent, as a relay does, and return its message as a worker sees it."""
    Job.objects.filter(pk=job.pk).update(sent_at=DatabaseNow())
    return message_of(job)


def message_of(job: Job) -> dict[str, Any]:
    """The job's current message as Celery's request."""
    job.refresh_from_db()
    assert job.message is not None
    envelope = Envelope.decode(job.message.envelope)
    args, kwargs, embed = json.loads(bytes(job.message.body).decode())
    return {
        **envelope.headers,
        **embed,
        "args": args,
        "kwargs": kwargs,
        JOB_HEADER: str(NamedJob(job.pk, job.public_id)),
        "hostname": "here",
        "delivery_info": {"exchange": "", "routing_key": envelope.routing_key},
        "correlation_id": envelope.headers["id"],
    }


def receive(message: dict[str, Any]) -> Any:
    """Run the message through the tracer; the answer has `retval` and `info` (None: success)."""
    task = current_app.tasks[message["task"]]
    tracer = build_tracer(task.name, task, app=current_app._get_current_object())
    return tracer(message["id"], message["args"], message["kwargs"], dict(message))


def deliver(job: Job) -> Any:
    """Send and receive in one."""
    return receive(send(job))


def state_of(answer: Any) -> str:
    """What Celery makes of the answer."""
    return "SUCCESS" if answer.info is None else str(answer.info.state)


def job_of(handle: Any) -> Job:
    """The row of a handle."""
    found = handle.job
    assert isinstance(found, Job)
    return found
