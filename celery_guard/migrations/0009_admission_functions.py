"""The taking of a place, and the insert that consumes it, as functions in PostgreSQL."""

from typing import Any

from django.db import migrations

from celery_guard.outbox.functions import create, drop

FUNCTIONS = ("insert_placed_1", "take_1")


def forwards(apps: Any, schema_editor: Any) -> None:
    """Make them."""
    create(schema_editor, FUNCTIONS)


def backwards(apps: Any, schema_editor: Any) -> None:
    """Remove them."""
    drop(schema_editor, FUNCTIONS)


class Migration(migrations.Migration):
    dependencies = [("celery_guard", "0008_job_waits")]

    # MariaDB knows no transaction around this; PostgreSQL has the migration's own.
    operations = [migrations.RunPython(forwards, backwards, atomic=False)]
