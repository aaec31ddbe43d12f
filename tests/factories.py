"""Rows as an enqueue would leave them, for tests that start in the middle."""

from __future__ import annotations

import json
import uuid
from datetime import timedelta

from django.db import transaction
from django.utils import timezone
from kombu.utils import json as kombu_json

from celery_guard.conf import guard_settings
from celery_guard.models import Job, OutboxMessage


def envelope(task_id: str, task: str, queue: str, **changes: object) -> str:
    """The stored envelope of a message to ``queue``, as Celery's default settings make it."""
    fields: dict[str, object] = {
        "content_type": "application/json",
        "content_encoding": "utf-8",
        "exchange": "",
        "routing_key": queue,
        "headers": {
            "lang": "py",
            "task": task,
            "id": task_id,
            "eta": None,
            "expires": None,
            "retries": 0,
            "timelimit": [None, None],
            "root_id": task_id,
            "parent_id": None,
            "ignore_result": True,
        },
        "properties": {"correlation_id": task_id, "reply_to": "", "delivery_mode": 2},
        "declare": [queue],
    }
    return str(kombu_json.dumps({**fields, **changes}))


def make_job(
    lane: str = "high",
    *,
    task: str = "shop.noop",
    using: str = "default",
    queue: str = "",
    args: tuple[object, ...] = (),
    due_in: float = 0.0,
    expires_in: float | None = None,
    plain: bool = False,
    body: bytes | None = None,
    text: str | None = None,
    **changes: object,
) -> Job:
    """One waiting job with its message, due ``due_in`` seconds from now."""
    public_id = uuid.uuid4()
    now = timezone.now()
    due = now + timedelta(seconds=due_in)
    embed = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}
    with transaction.atomic(using=using):
        message = OutboxMessage.objects.using(using).create(
            body=body if body is not None else json.dumps([args, {}, embed]).encode(),
            envelope=text
            or envelope(str(public_id), task, queue or guard_settings().lane(lane).queue),
            created_at=now,
        )
        fields: dict[str, object] = {
            "public_id": public_id,
            "task": task,
            "lane": lane,
            "plain": plain,
            "created_at": now,
            "first_due_at": due,
            "due_at": due,
            "expires_at": None if expires_in is None else now + timedelta(seconds=expires_in),
            "message": message,
        }
        return Job.objects.using(using).create(**{**fields, **changes})
