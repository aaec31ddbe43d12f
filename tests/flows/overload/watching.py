"""What is seen of the shop meanwhile: how many wait in each lane, who is connected."""

from collections import Counter

from django.db import connection

from tests.kit.looking import Looking

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


class Watch(Looking):
    """Looks ten times a second and keeps the highest of each figure."""

    def __init__(self) -> None:
        super().__init__(every=0.1)
        self.waiting: Counter[str] = Counter()
        self.connected: Counter[str] = Counter()

    def look(self) -> None:
        """Who waits and who is connected now."""
        with connection.cursor() as cursor:
            for question, most in ((WAITING, self.waiting), (CONNECTED, self.connected)):
                cursor.execute(question)
                for name, count in cursor.fetchall():
                    most[name] = max(most[name], count)
