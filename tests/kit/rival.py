"""A session that the database ends ours for: it holds what we wait for and then wants what we hold."""

import contextlib
import threading
from collections.abc import Callable, Iterator

from django.db import connection, transaction

from celery_guard.relay.limits.models import LimitHold


@contextlib.contextmanager
def rival(holds: Callable[[], object], wants: Callable[[], object]) -> Iterator[None]:
    """`holds` is locked by another session, which does `wants` once somebody waits for it.

    PostgreSQL ends whoever has waited for longest, MariaDB whoever has written least: both are we.
    """
    held, left = threading.Event(), threading.Event()

    def work() -> None:
        try:
            with transaction.atomic():
                holds()
                _write_much()
                held.set()
                if _somebody_waits(left):
                    wants()
        finally:
            connection.close()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        assert held.wait(20)
        yield
    finally:
        left.set()
        thread.join(20)


def _write_much() -> None:
    junk = [LimitHold(name="junk", kind="x", holder=str(n), at=1, over=1) for n in range(200)]
    LimitHold.objects.bulk_create(junk)


def _somebody_waits(left: threading.Event) -> bool:
    # MariaDB shows its locks anew only to whoever has not looked for a tenth of a second.
    while not left.wait(0.15):
        with connection.cursor() as cursor:
            cursor.execute(_WAITS[connection.vendor])
            if cursor.fetchone()[0]:
                return True
    return False


_WAITS = {
    "postgresql": "SELECT count(*) FROM pg_stat_activity"
    " WHERE wait_event_type = 'Lock' AND datname = current_database()",
    "mysql": "SELECT count(*) FROM information_schema.innodb_lock_waits AS waits"
    " JOIN information_schema.innodb_trx AS ours ON ours.trx_id = waits.blocking_trx_id"
    " WHERE ours.trx_mysql_thread_id = connection_id()",
}
