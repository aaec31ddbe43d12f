"""What is seen of a burst of updates: who waits for a lock, and what the runs of a key saw."""

import threading

from django.db import connection, connections

from tests.project.shop.witness import traces


class LockWatch:
    """Looks again and again whether a caller waits for a lock."""

    def __init__(self) -> None:
        self.waits: list[str] = []
        self.looks = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> "LockWatch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while connection.vendor == "postgresql" and not self._over.wait(0.005):
            self.looks += 1
            with connection.cursor() as cursor:
                cursor.execute(
                    "SELECT activity.query FROM pg_locks JOIN pg_stat_activity AS activity "
                    "USING (pid) WHERE NOT granted AND application_name = 'caller' "
                    # A page added to a table or index is no other caller's transaction.
                    "AND locktype <> 'extend'"
                )
                self.waits += [query for (query,) in cursor.fetchall()]
        connections.close_all()


def runs_of(key: str) -> list[int]:
    """What each run of the key has seen; AssertionError if two ran at once."""
    lines = [line.split() for line in traces(f"refresh-{key}")]
    assert [line[0] for line in lines] == ["begin", "end"] * (len(lines) // 2)
    return [int(line[1]) for line in lines[1::2]]
