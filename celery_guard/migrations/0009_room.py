"""The plain insert that uses a place up, and counting anew how much room there is."""

from typing import Any

from django.db import migrations

from celery_guard.outbox.functions import create, drop

FUNCTIONS = ("insert_due_placed_1", "recount_1")


def forwards(apps: Any, schema_editor: Any) -> None:
    """Make them."""
    create(schema_editor, FUNCTIONS)


def backwards(apps: Any, schema_editor: Any) -> None:
    """Remove them."""
    drop(schema_editor, FUNCTIONS)


class Migration(migrations.Migration):
    dependencies = [("celery_guard", "0008_job_shape")]

    # MariaDB knows no transaction around this; PostgreSQL has the migration's own.
    operations = [migrations.RunPython(forwards, backwards, atomic=False)]
