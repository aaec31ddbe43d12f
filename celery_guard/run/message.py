"""A stored message as a worker would get it, brought to Celery's tracer in this process."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from celery import Celery
from celery.app.trace import build_tracer
from kombu.serialization import loads

from celery_guard.jobs.named import JOB_HEADER, NamedJob
from celery_guard.outbox.envelope import Envelope


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """What Celery's tracer takes: the call, and its request."""

    task: str
    id: str
    args: Any
    kwargs: Any
    request: Mapping[str, Any]


def opened(task: str, body: bytes, envelope: str, job: NamedJob | None, hostname: str) -> Message:
    """The message of ``job`` (None: of a plain task) from its stored parts."""
    found = Envelope.decode(envelope)
    kinds = (found.content_type, found.content_encoding)
    args, kwargs, embed = loads(bytes(body), *kinds, accept=[found.content_type])
    request = {
        **found.headers,
        **embed,
        "args": args,
        "kwargs": kwargs,
        "eta": None,
        "expires": None,
        "hostname": hostname,
        "delivery_info": {"exchange": "", "routing_key": found.routing_key},
        "correlation_id": found.headers["id"],
    }
    if job is not None:
        request[JOB_HEADER] = str(job)
    return Message(task=task, id=found.headers["id"], args=args, kwargs=kwargs, request=request)


def traced(app: Celery, message: Message, *, tell: bool = True, **request: Any) -> Any:
    """Run the message as a worker's child would; what Celery was told, None for a success.

    :param tell: False where nobody is to be told by this run: no result is stored, no chord counted.
    :param request: changes of the request.
    :raises celery.exceptions.NotRegistered: when the task is not known here.
    """
    tracer = build_tracer(message.task, app.tasks[message.task], app=app, eager=not tell)
    asked = {**message.request, **request}
    info = tracer(message.id, message.args, message.kwargs, asked).info
    return None if info is None else info.retval
