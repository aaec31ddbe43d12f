"""The database's clock: the only one that decides anything."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import BigIntegerField, DateTimeField, ExpressionWrapper, Func, Value

NOW_SQL = {
    "postgresql": "clock_timestamp()",
    # UTC by name: NOW() follows the session's time zone, and Django stores UTC.
    "mysql": "UTC_TIMESTAMP(6)",
    "sqlite": "strftime('%%Y-%%m-%%d %%H:%%M:%%f000', 'now')",
}


class DatabaseNow(Func):
    """The wall clock of the database at this statement, not at the transaction's start."""

    template = "clock_timestamp()"
    output_field = DateTimeField()

    def as_mysql(self, compiler, connection, **context):  # type: ignore[no-untyped-def]
        return self.as_sql(compiler, connection, template=NOW_SQL["mysql"], **context)

    def as_sqlite(self, compiler, connection, **context):  # type: ignore[no-untyped-def]
        return self.as_sql(compiler, connection, template=NOW_SQL["sqlite"], **context)


class DatabaseMicros(Func):
    """The same in Unix microseconds, which know no zone: without ``USE_TZ`` PostgreSQL's times are
    read in the site's own, where an hour comes twice."""

    template = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
    output_field = BigIntegerField()

    def as_mysql(self, compiler, connection, **context):  # type: ignore[no-untyped-def]
        since = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"
        return self.as_sql(compiler, connection, template=since, **context)

    def as_sqlite(self, compiler, connection, **context):  # type: ignore[no-untyped-def]
        since = "CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER)"
        return self.as_sql(compiler, connection, template=since, **context)


class Instant(Value):
    """A time with a zone, for a column that holds the database's own times.

    Without ``USE_TZ`` Django refuses such a value on MySQL and MariaDB; what the database's clock
    wrote there is UTC, and so is this.
    """

    def __init__(self, when: datetime) -> None:
        super().__init__(when, output_field=DateTimeField())

    def as_mysql(self, compiler, connection, **context):  # type: ignore[no-untyped-def]
        if settings.USE_TZ:
            return self.as_sql(compiler, connection, **context)
        return "%s", [self.value.astimezone(UTC).replace(tzinfo=None)]


def in_seconds(seconds: float) -> ExpressionWrapper[Any]:
    """The database's time ``seconds`` from now (negative: ago)."""
    return ExpressionWrapper(
        DatabaseNow() + Value(timedelta(seconds=seconds)), output_field=DateTimeField()
    )


def now_sql(connection: BaseDatabaseWrapper) -> str:
    """The SQL of :class:`DatabaseNow` for statements written by hand."""
    return NOW_SQL[connection.vendor]


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
