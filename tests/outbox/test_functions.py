"""The functions in PostgreSQL: made where the tables are, found as the tables are found."""

import uuid
from collections.abc import Iterator
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from django.apps import apps
from django.conf import settings as site
from django.core.management.sql import emit_post_migrate_signal
from django.db import connection, connections, transaction

from celery_guard.jobs.models import Job
from celery_guard.outbox import functions, store
from tests.enqueue.rows import counts, jobs
from tests.outbox.test_store import captured, new

postgres = pytest.mark.skipif(connection.vendor != "postgresql", reason="PostgreSQL's functions")
pytestmark = [pytest.mark.django_db]

NAMES = [f"celery_guard_{name}" for name in functions.CURRENT]
MIGRATIONS: list[Any] = [
    import_module(f"celery_guard.migrations.{name}")
    for name in (
        "0002_databases",
        "0005_worker_functions",
        "0006_functions",
        "0009_room",
        "0010_planned_once",
    )
]


def made(using: str = "default") -> list[str]:
    """Those of the current functions that a call on this database finds."""
    with connections[using].cursor() as cursor:
        cursor.execute(
            "SELECT proname FROM pg_proc WHERE proname = ANY(%s) "
            "AND pg_function_is_visible(oid) ORDER BY 1",
            [NAMES],
        )
        return [name for (name,) in cursor.fetchall()]


@postgres
@pytest.mark.parametrize("using", ["default", "other"])
def test_every_ledger_has_its_own(using: str) -> None:
    """Migrating an alias is all it takes."""
    assert made(using) == NAMES
    assert store.insert(using, new("k"), captured()) is not None
    assert counts(using) == (1, 1)


@postgres
def test_the_migrations_can_be_taken_back() -> None:
    """Backwards nothing of it is left; forwards it is there again."""
    with connection.schema_editor() as editor:
        for migration in reversed(MIGRATIONS):
            migration.backwards(apps, editor)
        assert made() == []
        for migration in MIGRATIONS:
            migration.forwards(apps, editor)
    assert made() == NAMES


@pytest.mark.mariadb
@pytest.mark.skipif(connection.vendor == "postgresql", reason="elsewhere")
def test_other_databases_need_none() -> None:
    """Nothing is made, and nothing is missed when it is taken back."""
    editor = SimpleNamespace(connection=connection)
    functions.create(editor, functions.CURRENT)
    functions.drop(editor, functions.CURRENT)


@postgres
@pytest.mark.parametrize("disabled", [True, False])
def test_tables_made_without_migrations_get_them_too(settings: Any, disabled: bool) -> None:
    """``pytest --nomigrations`` is common; with migrations a step back must stay a step back."""
    if disabled:
        settings.MIGRATION_MODULES = {"celery_guard": None}
    with connection.schema_editor() as editor:
        functions.drop(editor, functions.CURRENT)
    for _ in range(2):
        emit_post_migrate_signal(0, False, "default")
    assert made() == (NAMES if disabled else [])


@pytest.fixture
def tenant_schema() -> Iterator[str]:
    """A schema of its own with tables and functions, as for one tenant of a site."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("CREATE SCHEMA guard_tenant")
        cursor.execute("SET LOCAL search_path TO guard_tenant, public")
        for table in ("job", "outboxmessage"):
            cursor.execute(
                f"CREATE TABLE guard_tenant.celery_guard_{table} "
                f"(LIKE public.celery_guard_{table} INCLUDING ALL)"
            )
        with connection.schema_editor() as editor:
            functions.create(editor, functions.CURRENT)
        yield "guard_tenant"
        transaction.set_rollback(True)


@postgres
def test_the_path_of_the_caller_decides(tenant_schema: str) -> None:
    """One session that goes from schema to schema writes where it stands, as plain SQL would.

    The plans that the session keeps must not carry over.
    """

    def path(*schemas: str) -> None:
        with connection.cursor() as cursor:
            cursor.execute(f"SET LOCAL search_path TO {', '.join(schemas)}")

    for _ in range(7):
        path(tenant_schema, "public")
        assert store.insert("default", new(), captured()) is not None
        assert len(store.insert_many("default", [(new(), captured())])) == 1
        path("public")
        assert store.insert("default", new(), captured()) is not None
    assert counts() == (7, 7)
    path(tenant_schema)
    assert counts() == (14, 14)


@postgres
def test_a_driver_that_binds_on_the_server_finds_them() -> None:
    """Django's ``server_side_binding`` sends types of its own choice; they must fit."""
    job, message = new("k", delay=1.5, survivor_id=7, max_delay=2.0), captured()
    values = (*store._values(job), message.body, message.envelope_text)
    with psycopg.Cursor(connection.connection) as cursor:
        cursor.execute(store._INSERT.through_cursor, values, prepare=True)
        (row,) = cursor.fetchall()
        shared, own = store._documents([(new("b"), message)], [0])
        cursor.execute(store._INSERT_MANY.through_cursor, (shared, own), prepare=True)
        assert len(cursor.fetchall()) == 1
    assert row[0] in [one.pk for one in jobs()]


@postgres
@pytest.mark.parametrize("name", ["claim_3", "next_due_1", "release_2"])
def test_what_stands_between_a_commit_and_the_body_is_planned_once(name: str) -> None:
    """Not anew at each of a session's first five calls: a quiet worker makes few more."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT proconfig FROM pg_proc WHERE proname = %s", [f"celery_guard_{name}"])
        ((config,),) = cursor.fetchall()
    assert "plan_cache_mode=force_generic_plan" in config


@postgres
def test_the_rights_are_the_callers() -> None:
    """A function that ran with its maker's rights would be a way around the site's own."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT bool_or(prosecdef) FROM pg_proc WHERE proname = ANY(%s)", [NAMES])
        assert cursor.fetchone() == (False,)


@pytest.mark.mariadb
def test_what_jobs_share_and_what_they_do_not_comes_out_the_same() -> None:
    """Every field, alone or shared, NULL among values included, is what one by one would write."""
    values: list[dict[str, Any]] = [
        {},
        {"tenant": "t", "dependency": "d", "coalesce_key": "c", "max_delay": 3.0},
        {"awaited": True, "plain": True, "reason": "eta", "survivor_id": 5, "fingerprint": "f"},
        {"tenant": "ü'\"\\", "expires_in": 5.0, "delay": 2.0},
    ]
    for name, chosen in (("mixed", values), ("shared", values[1:2] * 3)):
        one_by_one = [new(f"{name} one {n}", **one) for n, one in enumerate(chosen)]
        together = [new(f"{name} many {n}", **one) for n, one in enumerate(chosen)]
        for one in one_by_one:
            store.insert("default", one, captured())
        store.insert_many("default", [(one, captured(b"[1]")) for one in together])
        for one, other in zip(one_by_one, together, strict=True):
            assert _row(one.public_id) == _row(other.public_id)


def _row(public_id: uuid.UUID) -> dict[str, Any]:
    (row,) = Job.objects.filter(public_id=public_id).values()
    times = ("due_at", "first_due_at", "expires_at", "max_due_at")
    after = {
        name: row[name] and round((row[name] - row["created_at"]).total_seconds()) for name in times
    }
    different = ("id", "public_id", "key", "message_id", "created_at")
    return {**{n: v for n, v in row.items() if n not in different}, **after}


def test_the_migration_belongs_to_the_site() -> None:
    """The tests run with migrations, or the rest of this file proves nothing."""
    assert "celery_guard" not in getattr(site, "MIGRATION_MODULES", {})
