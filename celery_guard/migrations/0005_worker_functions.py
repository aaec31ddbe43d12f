"""The claim and the success of a job as functions in PostgreSQL."""

from typing import Any

from django.db import migrations

from celery_guard.outbox.functions import create, drop

FUNCTIONS = ("claim_1", "succeed_1")


def forwards(apps: Any, schema_editor: Any) -> None:
    """Make them."""
    create(schema_editor, FUNCTIONS)


def backwards(apps: Any, schema_editor: Any) -> None:
    """Remove them."""
    drop(schema_editor, FUNCTIONS)


class Migration(migrations.Migration):
    dependencies = [("celery_guard", "0004_retry_window")]

    # MariaDB knows no transaction around this; PostgreSQL has the migration's own.
    operations = [migrations.RunPython(forwards, backwards, atomic=False)]
