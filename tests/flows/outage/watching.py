"""What is seen while the backlog drains: what is with the broker, and the pace of the calls."""

import threading
from collections.abc import Sequence
from typing import Any

import redis
from django.db import connections

from celery_guard.models import Job


class Watch:
    """Looks often and keeps the highest of each figure."""

    def __init__(self, url: str, queue: str) -> None:
        self.out = self.queued = self.looks = 0
        """Most jobs that were sent and not finished; most messages that waited in the queue."""
        self._url, self._queue = url, queue
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> "Watch":
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        with redis.Redis.from_url(self._url) as broker:
            while not self._over.wait(0.1):
                self.looks += 1
                sent = Job.objects.filter(lane="medium", sent_at__isnull=False)
                self.out = max(self.out, sent.count())
                self.queued = max(self.queued, int(broker.llen(self._queue)))  # type: ignore[arg-type]
        connections.close_all()


def fullest(times: Sequence[float], seconds: float) -> int:
    """How many of the sorted ``times`` the fullest window of so many seconds holds."""
    most = first = 0
    for last, at in enumerate(times):
        while times[first] < at - seconds:
            first += 1
        most = max(most, last - first + 1)
    return most
