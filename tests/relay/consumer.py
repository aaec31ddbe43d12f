"""A worker's part in a few lines: take messages off Redis, claim their jobs, end them."""

import json
import os
import uuid
from collections import Counter, deque

import redis
from django.db import connections
from django.db.models import F
from django.utils import timezone

from celery_guard.models import Job
from tests.relay.ledger import job_of, queue_of


class Consumer:
    """Counts messages and claims of each job; a message without a claimable job is dropped.

    The last ``slots`` claimed jobs count as running, as in a worker of that size.
    """

    def __init__(self, lane: str = "high", slots: int = 0) -> None:
        self.messages: Counter[int] = Counter()
        self.claims: Counter[int] = Counter()
        self.order: list[int] = []
        self._slots = slots
        self._owner = uuid.uuid4()
        self._running: deque[int] = deque()
        self._queue = queue_of(lane)
        self._client = redis.Redis.from_url(os.environ["REDIS_URL"])

    def consume(self, most: int = 10_000) -> int:
        """Take up to ``most`` messages that are there; return how many jobs were claimed so far."""
        for _ in range(most):
            if (raw := self._client.rpop(self._queue)) is None:
                break
            self._claim(job_of(json.loads(raw)["headers"]))
        return len(self.order)

    def lose_all(self) -> None:
        """Drop what is in the queue, as a broker that loses messages."""
        self._client.delete(self._queue)

    def _claim(self, job: int) -> None:
        self.messages[job] += 1
        claimable = Job.objects.filter(pk=job, state="waiting", sent_at__isnull=False)
        if claimable.update(state="running", owner=self._owner, starts=F("starts") + 1):
            self.claims[job] += 1
            self.order.append(job)
            self._running.append(job)
            self._end(keep=self._slots)

    def _end(self, keep: int = 0) -> None:
        while len(self._running) > keep:
            Job.objects.filter(pk=self._running.popleft()).update(
                state="succeeded",
                owner=None,
                sent_at=None,
                due_at=None,
                finished_at=timezone.now(),
            )

    def close(self) -> None:
        """End what runs and let go of the connections."""
        self._end()
        self._client.close()
        connections["default"].close()
