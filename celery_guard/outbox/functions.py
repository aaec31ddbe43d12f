"""The functions that PostgreSQL keeps for the guard: what a migration makes, a call finds.

Each stands in a file of its own under its room's ``sql/``, named with a version that is part of its name in
the database. A released file never changes; what it should do otherwise is a new version, made by
a new migration, and the old one goes with a later release. So old and new code run side by side.
"""

from __future__ import annotations

from importlib import resources
from typing import Any

from django.db import connections
from django.db.migrations.loader import MigrationLoader

CURRENT = (
    *("claim_3", "insert_1", "insert_due_1", "insert_due_placed_1", "insert_many_1"),
    *("insert_placed_1", "next_due_1", "recount_1", "release_2", "succeed_1", "take_1"),
)
"""What this release calls."""
_ROOMS = {"insert": "outbox", "recount": "enqueue.admission", "take": "enqueue.admission"}


def text_of(name: str) -> str:
    """The statement in ``sql/<name>.sql``, without its header."""
    room = _ROOMS.get(name.partition("_")[0], "jobs")
    file = resources.files(f"celery_guard.{room}").joinpath("sql", f"{name}.sql")
    text = file.read_text("utf-8")
    return "\n".join(line for line in text.splitlines() if not line.startswith("--"))


def create(schema_editor: Any, names: tuple[str, ...]) -> None:
    """Make the functions ``names``, where the database is PostgreSQL."""
    if schema_editor.connection.vendor == "postgresql":
        for name in names:
            schema_editor.execute(text_of(name), params=None)


def drop(schema_editor: Any, names: tuple[str, ...]) -> None:
    """Remove the functions ``names`` again."""
    if schema_editor.connection.vendor == "postgresql":
        for name in names:
            schema_editor.execute(f"DROP FUNCTION IF EXISTS celery_guard_{name}", params=None)


def create_without_migrations(using: str, **_: Any) -> None:
    """Make what is called, where tables are made without migrations (``pytest --nomigrations``)."""
    module, _explicit = MigrationLoader.migrations_module("celery_guard")
    if module is None:
        with connections[using].schema_editor() as editor:
            create(editor, CURRENT)
