"""A body's first statement in one message with the BEGIN of its transaction.

PostgreSQL's driver begins a transaction only when it is first used, by a message of its own. So a
body that computes before it writes holds no transaction open meanwhile, and that stays so; but the
server is asked twice where once will do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper

from celery_guard.jobs import begin_and_commit

Execute = Callable[..., Any]


def begun_with(
    connection: BaseDatabaseWrapper,
    execute: Execute,
    sql: Any,
    params: Any,
    many: bool,
    context: Any,
) -> Any:
    """What Django's ``execute`` of a wrapper returns, which begins the transaction where that is due."""
    if many or not begin_and_commit.is_to_begin(connection) or not _takes_two(context, sql):
        return execute(sql, params, many, context)
    driver: Any = connection.connection
    try:
        # For this statement alone: else the driver sends its own BEGIN before it.
        driver._autocommit = True
        found = execute(f"BEGIN; {sql}", params, many, context)
    finally:
        driver._autocommit = False
    context["cursor"].cursor.nextset()
    return found


def _takes_two(context: Any, sql: Any) -> bool:
    from psycopg import ClientCursor

    # The others hand their statements over in a form that holds only one.
    return isinstance(sql, str) and isinstance(context["cursor"].cursor, ClientCursor)
