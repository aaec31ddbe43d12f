"""What tests of the relay ask of the ledger and of the broker."""

import json
import os
import uuid
from collections import Counter
from collections.abc import Mapping

import redis
from kombu import Connection

from celery_guard.conf import guard_settings
from celery_guard.jobs.named import JOB_HEADER, named_in
from celery_guard.jobs.sending import Lead
from celery_guard.models import Job, LaneLead, Series
from celery_guard.relay import lead as leads
from tests.kit.wait import wait_for


def queue_of(lane: str = "high") -> str:
    """The broker queue of a lane in this test run."""
    return guard_settings().lane(lane).queue


def lead(lane: str = "high", lease: float = 60.0) -> Lead:
    """The lead of a lane, newly taken."""
    return leads.take("default", uuid.uuid4(), [lane], lease)[lane]


def measured(task: str, seconds: int, runs: int) -> None:
    """The good runs of a task were counted, and took so long together."""
    labels = json.dumps(["high", task])
    for name, value in (("30", runs), ("sum", seconds * 1_000_000)):
        Series.objects.create(name=f"job_duration_seconds:{name}", labels=labels, value=value)


def unsent() -> int:
    """How many jobs wait for a relay."""
    return Job.objects.filter(state="waiting", sent_at=None).count()


def messages(lane: str = "high") -> list[dict[str, object]]:
    """Every message in a lane's Redis list, the next one first; nothing is taken."""
    client = redis.Redis.from_url(os.environ["REDIS_URL"])
    raw = client.lrange(queue_of(lane), 0, -1)
    client.close()
    return [json.loads(text) for text in reversed(raw)]


def jobs_on_redis(lane: str = "high") -> Counter[int]:
    """How often each job id lies in a lane's Redis list."""
    return Counter(job_of(message["headers"]) for message in messages(lane))


def job_of(headers: Mapping[str, object]) -> int:
    """The id of the job that a message's headers name."""
    named = named_in(headers[JOB_HEADER])
    assert named is not None
    return named.id


def take_all(url: str, queue: str) -> list[tuple[bytes, dict[str, object], dict[str, object]]]:
    """Take all messages off a queue on any broker: body, headers, properties."""
    found = []
    with Connection(url) as connection, connection.channel() as channel:
        while (message := channel.basic_get(queue, no_ack=True)) is not None:
            body = message.body
            found.append(
                (
                    body if isinstance(body, bytes) else body.encode(),
                    dict(message.headers),
                    {**message.properties, "content_type": message.content_type},
                )
            )
    return found


def depth(url: str, queue: str) -> int:
    """How many messages are ready in a queue; 0 when it doesn't exist."""
    with Connection(url) as connection:
        channel = connection.channel()
        try:
            return int(channel.queue_declare(queue, passive=True).message_count)
        except connection.channel_errors:
            return 0


def wait_until_workers_are_read(lane: str) -> None:
    """Until the leader of ``lane`` knows of all workers that have reported by now."""
    led = LaneLead.objects.filter(lane=lane, lead_until__isnull=False)
    seen = wait_for(led.first, what=f"a leader of {lane}")
    assert seen is not None
    for _ in range(2):
        # Who serves a lane is read with every renewal.
        later = led.filter(lead_until__gt=seen.lead_until)
        seen = wait_for(later.first, what="a renewal")
        assert seen is not None
