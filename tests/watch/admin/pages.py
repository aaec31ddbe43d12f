"""Addresses of the admin pages, and what their SQL must never hold."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection
from django.http import HttpResponse
from django.test import Client
from django.test.utils import CaptureQueriesContext

JOBS = "/admin/celery_guard/job/"
ATTEMPTS = "/admin/celery_guard/attempt/"
MESSAGES = "/admin/celery_guard/outboxmessage/"
LANES = "/admin/celery_guard/lanesnapshot/"
DASHBOARD = "/admin/celery_guard/"
EFFECTS = "/admin/celery_guard/effect/"

QUERIES_MOST = 10
HOUSEKEEPING = re.compile(r"^(SAVEPOINT|RELEASE|ROLLBACK)|_setting\(|_config\(", re.IGNORECASE)


def text(answer: HttpResponse) -> str:
    """The page."""
    return answer.content.decode()


@contextmanager
def bounded_queries() -> Iterator[None]:
    """Inside: few queries, none that counts or tells apart a whole table."""
    with CaptureQueriesContext(connection) as captured:
        yield
    statements = [query["sql"] for query in captured.captured_queries]
    # A test's own transaction makes the page's one a savepoint.
    statements = [sql for sql in statements if not HOUSEKEEPING.search(sql)]
    assert len(statements) <= QUERIES_MOST, "\n".join(statements)
    for statement in statements:
        sql = statement.upper()
        assert "SELECT DISTINCT" not in sql, statement
        assert "COUNT(" not in sql or "LIMIT" in sql, statement


def get(client: Client, path: str, **query: object) -> HttpResponse:
    """The page at ``path``, which must be there and be asked for by bounded queries."""
    with bounded_queries():
        answer = client.get(path, query)
    assert answer.status_code == 200
    return answer
