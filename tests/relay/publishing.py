"""Publishing without a database: sendings made by hand, publishers on real brokers."""

import itertools
import json
import uuid
from datetime import UTC, datetime

from celery import current_app

from celery_guard.jobs.sending import Sending
from celery_guard.relay.publish import publisher_for
from celery_guard.relay.publish.deliver import deliver
from tests.factories import envelope

_numbers = itertools.count(1)
BODY = json.dumps([[1], {}, {"callbacks": None, "errbacks": None, "chain": None, "chord": None}])


def sending(queue: str, **changes: object) -> Sending:
    """A job marked as sent, whose message goes to ``queue``."""
    number = next(_numbers)
    fields: dict[str, object] = {
        "id": number,
        "public_id": uuid.uuid4(),
        "task": "t",
        "plain": False,
        "awaited": False,
        "state": "waiting",
        "sent_at": datetime.now(UTC),
        "sends": 1,
        "message_id": number,
        "body": BODY.encode(),
        "envelope": envelope(f"task-{number}", "t", queue),
    }
    return Sending(**{**fields, **changes})


def publish(*sendings: Sending, timeout: float = 2.0, budget: float = 5.0):
    """One delivery on a connection of its own."""
    publisher = publisher_for(current_app._get_current_object(), timeout)
    try:
        return deliver(publisher, list(sendings), budget)
    finally:
        publisher.close()


def ids(sendings) -> list[int]:
    """The job ids of a part of a delivery."""
    return [sending.id for sending in sendings]
