"""Tell PostgreSQL that the ledger is a queue: room for HOT updates, early vacuum."""

from typing import Any

from django.db import migrations

OPTIONS = {
    # Three updates a job: room on its own page keeps most of them out of the indexes.
    "celery_guard_job": (
        "fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, "
        "autovacuum_vacuum_threshold = 1000, autovacuum_analyze_scale_factor = 0.05"
    ),
    "celery_guard_outboxmessage": (
        "autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000"
    ),
}


def set_options(apps: Any, schema_editor: Any) -> None:
    if schema_editor.connection.vendor == "postgresql":
        for table, options in OPTIONS.items():
            schema_editor.execute(f"ALTER TABLE {table} SET ({options})")


class Migration(migrations.Migration):
    """Reversing leaves the options: they harm nothing."""

    dependencies = [("celery_guard", "0001_initial")]

    operations = [migrations.RunPython(set_options, migrations.RunPython.noop)]
