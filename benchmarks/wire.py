"""A Celery message as it lies in a Redis list, built without Celery or kombu."""

import base64
import json
import os
import socket
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.place import here

_ORIGIN = f"gen{os.getpid()}@{socket.gethostname()}"
_EMBED = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}
_UNUSED = ("shadow", "eta", "expires", "group", "group_index", "parent_id", "stamped_headers")


def redis_message(task_id: str, task: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Return the list element for one call of `task`."""
    body = json.dumps([args, kwargs, _EMBED]).encode()
    return json.dumps(
        {
            "body": base64.b64encode(body).decode(),
            "content-encoding": "utf-8",
            "content-type": "application/json",
            "headers": _headers(task_id, task, args, kwargs),
            "properties": _properties(task_id),
        }
    )


def _headers(
    task_id: str, task: str, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    return {
        **dict.fromkeys(_UNUSED),
        "lang": "py",
        "task": task,
        "id": task_id,
        "root_id": task_id,
        "retries": 0,
        "timelimit": [None, None],
        "argsrepr": repr(tuple(args)),
        "kwargsrepr": repr(kwargs),
        "origin": _ORIGIN,
        "ignore_result": True,
        "replaced_task_nesting": 0,
        "stamps": {},
    }


def _properties(task_id: str) -> dict[str, Any]:
    return {
        "correlation_id": task_id,
        "reply_to": "",
        "delivery_mode": 2,
        "delivery_info": {"exchange": "", "routing_key": here().queue},
        "priority": 0,
        "body_encoding": "base64",
        "delivery_tag": str(uuid.uuid4()),
    }
