"""Which lanes may take over from one another, and what sends a job to another one.

A message names its queue and is never rewritten. A job that changes its lane gets a new message: its
own body and headers, with the address of one that was made for the other lane.
"""

from __future__ import annotations

import json
from typing import Any

from django.apps import apps

from celery_guard.conf import guard_settings
from celery_guard.jobs.clock import DatabaseNow
from celery_guard.jobs.models import Job

_ADDRESS = ("exchange", "routing_key", "declare")


def mates(lane: str) -> list[str]:
    """The lanes whose requests come together with those of ``lane``, the fastest first.

    A queue outside all lanes stays alone: somebody named it, and nothing says how fast it is.
    """
    lanes = guard_settings().lanes
    if lane not in lanes:
        return [lane]
    return sorted(lanes, key=lambda name: lanes[name].objective)


def moved(using: str, job: Job, like: Job) -> dict[str, object]:
    """The columns that let ``job`` go the way of ``like``; none where a message is gone or broken.

    In the open transaction, which has locked ``job``. Without them it stays in its lane, where it
    is parked by whoever can't send its message.
    """
    if job.lane == like.lane:
        return {}
    # The table is a higher room's; it is reached by its name.
    messages: Any = apps.get_model("celery_guard", "OutboxMessage").objects.using(using)
    found = messages.in_bulk([pk for pk in (job.message_id, like.message_id) if pk])
    if len(found) < 2:
        return {}
    old = found[job.message_id]
    try:
        envelope = _addressed(old.envelope, found[like.message_id].envelope)
    except (ValueError, KeyError, TypeError):
        return {}
    new = messages.create(body=old.body, envelope=envelope, created_at=DatabaseNow())
    # Nothing else names it, and the purge goes by the messages that jobs name.
    messages.filter(pk=old.pk).delete()
    return {"lane": like.lane, "message_id": new.pk}


def _addressed(envelope: str, like: str) -> str:
    # Plain JSON: kombu's tagged values pass through as they are.
    fields, other = json.loads(envelope), json.loads(like)
    fields |= {name: other[name] for name in _ADDRESS}
    fields["properties"]["priority"] = other["properties"].get("priority")
    return json.dumps(fields)
