"""What is seen of a burst of updates: who waits for a lock, and what the runs of a key saw."""

from django.db import connection

from tests.kit.looking import Looking
from tests.project.shop.witness import traces


class LockWatch(Looking):
    """Looks again and again whether a caller waits for a lock; on PostgreSQL alone."""

    def __init__(self) -> None:
        super().__init__(every=0.005)
        self.waits: list[str] = []

    def look(self) -> None:
        """Whose statements wait now."""
        if connection.vendor != "postgresql":
            return
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT activity.query FROM pg_locks JOIN pg_stat_activity AS activity "
                "USING (pid) WHERE NOT granted AND application_name = 'caller' "
                # A page added to a table or index is no other caller's transaction.
                "AND locktype <> 'extend'"
            )
            self.waits += [query for (query,) in cursor.fetchall()]


def runs_of(key: str) -> list[int]:
    """What each run of the key has seen; AssertionError if two ran at once."""
    lines = [line.split() for line in traces(f"refresh-{key}")]
    assert [line[0] for line in lines] == ["begin", "end"] * (len(lines) // 2)
    return [int(line[1]) for line in lines[1::2]]
