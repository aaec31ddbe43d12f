"""What is seen while the backlog drains: what is with the broker, and the pace of the calls."""

import contextlib
from collections.abc import Sequence

import redis

from celery_guard.models import Job
from tests.kit.looking import Looking


class Watch(Looking):
    """Looks often and keeps the highest of each figure; the broker may be away at first."""

    def __init__(self, url: str, queue: str) -> None:
        super().__init__(every=0.1)
        self.out = self.queued = 0
        """Most jobs that were sent and not finished; most messages that waited in the queue."""
        self._broker, self._queue = redis.Redis.from_url(url), queue

    def __exit__(self, *raised: object) -> None:
        try:
            super().__exit__(*raised)
        finally:
            self._broker.close()

    def look(self) -> None:
        """How many jobs and messages are on their way now."""
        sent = Job.objects.filter(lane="medium", sent_at__isnull=False)
        self.out = max(self.out, sent.count())
        with contextlib.suppress(redis.ConnectionError):
            self.queued = max(self.queued, int(self._broker.llen(self._queue)))  # type: ignore[arg-type]


def fullest(times: Sequence[float], seconds: float) -> int:
    """How many of the sorted ``times`` the fullest window of so many seconds holds."""
    most = first = 0
    for last, at in enumerate(times):
        while times[first] < at - seconds:
            first += 1
        most = max(most, last - first + 1)
    return most
