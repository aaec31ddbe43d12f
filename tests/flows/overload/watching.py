"""What is seen of the shop meanwhile: how many wait in each lane, who is connected."""

import threading
from collections import Counter
from typing import Any

from django.db import connection, connections

WAITING = """
SELECT lane, count(*) FROM (
    SELECT lane FROM celery_guard_job WHERE state = 'waiting'
    UNION ALL SELECT lane FROM celery_guard_reservation
) AS held GROUP BY lane
"""
CONNECTED = """
SELECT application_name, count(*) FROM pg_stat_activity
WHERE datname = current_database() GROUP BY 1
"""


class Watch:
    """Looks ten times a second and keeps the highest of each figure."""

    def __init__(self) -> None:
        self.waiting: Counter[str] = Counter()
        self.connected: Counter[str] = Counter()
        self.looks = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> "Watch":
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        with connection.cursor() as cursor:
            while not self._over.wait(0.1):
                self.looks += 1
                for question, most in ((WAITING, self.waiting), (CONNECTED, self.connected)):
                    cursor.execute(question)
                    for name, count in cursor.fetchall():
                        most[name] = max(most[name], count)
        connections.close_all()
