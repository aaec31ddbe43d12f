"""Claim, release and the question what is due next, planned once a session and not six times."""

from typing import Any

from django.db import migrations

from celery_guard.outbox.functions import create, drop

# The versions before stay for the processes that still run the code before this.
FUNCTIONS = ("claim_3", "next_due_1", "release_2")


def forwards(apps: Any, schema_editor: Any) -> None:
    """Make them."""
    create(schema_editor, FUNCTIONS)


def backwards(apps: Any, schema_editor: Any) -> None:
    """Remove them."""
    drop(schema_editor, FUNCTIONS)


class Migration(migrations.Migration):
    dependencies = [("celery_guard", "0009_room")]

    # MariaDB knows no transaction around this; PostgreSQL has the migration's own.
    operations = [migrations.RunPython(forwards, backwards, atomic=False)]
