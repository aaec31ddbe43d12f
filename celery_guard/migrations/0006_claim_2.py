"""The claim of a job as a function that returns one text."""

from typing import Any

from django.db import migrations

from celery_guard.outbox.functions import create, drop

# The first version stays for the processes that still run the code before this.
FUNCTIONS = ("claim_2",)


def forwards(apps: Any, schema_editor: Any) -> None:
    """Make it."""
    create(schema_editor, FUNCTIONS)


def backwards(apps: Any, schema_editor: Any) -> None:
    """Remove it."""
    drop(schema_editor, FUNCTIONS)


class Migration(migrations.Migration):
    dependencies = [("celery_guard", "0005_worker_functions")]

    # MariaDB knows no transaction around this; PostgreSQL has the migration's own.
    operations = [migrations.RunPython(forwards, backwards, atomic=False)]
