"""The insert of a job that is due at once as a function in PostgreSQL."""

from typing import Any

from django.db import migrations

from celery_guard.outbox.functions import create, drop

FUNCTIONS = ("insert_due_1",)


def forwards(apps: Any, schema_editor: Any) -> None:
    """Make it."""
    create(schema_editor, FUNCTIONS)


def backwards(apps: Any, schema_editor: Any) -> None:
    """Remove it."""
    drop(schema_editor, FUNCTIONS)


class Migration(migrations.Migration):
    dependencies = [("celery_guard", "0006_claim_2")]

    # MariaDB knows no transaction around this; PostgreSQL has the migration's own.
    operations = [migrations.RunPython(forwards, backwards, atomic=False)]
