"""Stages, set as an operator does, and what the broker holds of a task."""

import base64
import json
from typing import Any

import redis

from celery_guard.enqueue.rollout.models import TaskMode
from celery_guard.enqueue.rollout.turning import set_stage


def set_to(task: Any, mode: str, seconds: float = 600) -> TaskMode:
    """The stage of a task, from now."""
    return set_stage(
        task.guard.alias,
        task=task.name,
        stage=mode,
        reason="a test",
        author="me",
        seconds=seconds,
    )


def messages(client: redis.Redis, task: Any) -> list[dict[str, Any]]:
    """The messages in the task's queue as they were published, the oldest first."""
    raw: Any = client.lrange(task.lane_queue(), 0, -1)
    return [json.loads(one) for one in reversed(raw)]


def arguments(message: dict[str, Any]) -> Any:
    """What such a message carries."""
    return json.loads(base64.b64decode(message["body"]))[0]
