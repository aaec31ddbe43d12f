"""Rows made, multiplied and removed inside PostgreSQL, where a million of them takes seconds."""

from collections.abc import Iterable, Sequence
from typing import Any

SHOP = ("shop_order", "shop_effect", "shop_claim", "limit_outbox")


def move_to(database: str) -> None:
    """Have this process work on another database of the server."""
    from django.db import connection

    connection.close()
    # Shared by the connections of all threads.
    connection.settings_dict["NAME"] = database


def execute(statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    """Run one statement and return its rows, if it has any."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        return cursor.fetchall() if cursor.description else []


def scalar(statement: str, parameters: Sequence[Any] = ()) -> Any:
    """Return the first column of the first row."""
    return execute(statement, parameters)[0][0]


def empty(own: Iterable[str]) -> None:
    """Empty the shop's tables and the contender's own."""
    names = ", ".join(sorted({*SHOP, *own}))
    execute(f"TRUNCATE {names} RESTART IDENTITY CASCADE")


def vacuum(*names: str) -> None:
    """Give the tables the statistics a server would have gathered by then."""
    for name in names:
        execute(f"VACUUM ANALYZE {name}")


def flush_statistics() -> None:
    """Have the server count what this session did so far; it would else lag by a second."""
    execute("SELECT pg_stat_force_next_flush()")
    execute("SELECT pg_stat_clear_snapshot()")


def multiply(table: str, rows: int, **expressions: str) -> None:
    """Make the newest row of `table` into `rows` rows.

    `expressions` maps a column to the SQL it gets in every row, the first included;
    `{g}` in it is the row's number from 0. All other columns are copied; `id` takes its default.
    """
    first = scalar(f"SELECT max(id) FROM {table}")
    changes = ", ".join(f'"{name}" = {_numbered(sql, "0")}' for name, sql in expressions.items())
    if changes:
        execute(f"UPDATE {table} SET {changes} WHERE id = %s", [first])
    columns = [name for name in _columns(table) if name != "id" or "id" in expressions]
    values = [
        _numbered(expressions[name], "g") if name in expressions else f't."{name}"'
        for name in columns
    ]
    names = ", ".join(f'"{name}"' for name in columns)
    execute(
        f"INSERT INTO {table} ({names}) SELECT {', '.join(values)} "
        f"FROM {table} t, generate_series(1, %s) g WHERE t.id = %s",
        [rows - 1, first],
    )
    vacuum(table)


def _numbered(expression: str, number: str) -> str:
    return expression.replace("{g}", number)


def _columns(table: str) -> list[str]:
    found = execute(
        "SELECT column_name FROM information_schema.columns "
        "WHERE table_schema = current_schema() AND table_name = %s ORDER BY ordinal_position",
        [table],
    )
    return [name for (name,) in found]
