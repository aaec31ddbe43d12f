"""What models can't say: an index that databases make differently, PostgreSQL's storage, its functions."""

from typing import Any

from django.db import migrations

from celery_guard.outbox.functions import create, drop

FUNCTIONS = ("insert_1", "insert_many_1", "release_1")
# Only tenants' own unfinished jobs where an index may be partial; elsewhere the due time, NULL once
# a job has ended, bounds the range.
TENANTS = {
    "mysql": "CREATE INDEX celery_guard_job_tenant ON celery_guard_job (tenant, lane, due_at)",
}
PARTIAL = (
    "CREATE INDEX celery_guard_job_tenant ON celery_guard_job (tenant, lane, due_at) "
    "WHERE tenant <> '' AND due_at IS NOT NULL"
)
OPTIONS = {
    # Three updates a job: room on its own page keeps most of them out of the indexes.
    "celery_guard_job": (
        "fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, "
        "autovacuum_vacuum_threshold = 1000, autovacuum_analyze_scale_factor = 0.05"
    ),
    "celery_guard_outboxmessage": (
        "autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000"
    ),
    # Both are small and change all the time.
    "celery_guard_gate": "fillfactor = 20, autovacuum_vacuum_threshold = 200",
    "celery_guard_reservation": (
        "autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500"
    ),
}


def forwards(apps: Any, schema_editor: Any) -> None:
    """Make all of it."""
    vendor = schema_editor.connection.vendor
    schema_editor.execute(TENANTS.get(vendor, PARTIAL))
    if vendor == "postgresql":
        for table, options in OPTIONS.items():
            schema_editor.execute(f"ALTER TABLE {table} SET ({options})")
    create(schema_editor, FUNCTIONS)


def backwards(apps: Any, schema_editor: Any) -> None:
    """Leave the options, which harm nothing, and remove the rest."""
    drop(schema_editor, FUNCTIONS)
    on_table = " ON celery_guard_job" if schema_editor.connection.vendor == "mysql" else ""
    schema_editor.execute(f"DROP INDEX celery_guard_job_tenant{on_table}")


class Migration(migrations.Migration):
    dependencies = [("celery_guard", "0001_initial")]

    # MariaDB knows no transaction around this; PostgreSQL has the migration's own.
    operations = [migrations.RunPython(forwards, backwards, atomic=False)]
