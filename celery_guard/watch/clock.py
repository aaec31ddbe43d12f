"""The database's time as a value, for a measurement that spans several statements."""

from __future__ import annotations

from datetime import UTC, datetime

from django.conf import settings
from django.db import connections

from celery_guard.jobs.clock import now_sql


def database_time(using: str) -> datetime:
    """The clock of the database on ``using``, in the form in which its columns are read."""
    connection = connections[using]
    with connection.cursor() as cursor:
        # Without parameters a doubled percent sign would stay doubled.
        cursor.execute(f"SELECT {now_sql(connection)} WHERE 1 = %s", [1])
        value: str | datetime = cursor.fetchone()[0]
    # SQLite says the time as text, MariaDB without a zone; both say it in UTC.
    time = datetime.fromisoformat(value) if isinstance(value, str) else value
    return time.replace(tzinfo=UTC) if settings.USE_TZ and time.tzinfo is None else time
