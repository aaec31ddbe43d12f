"""Shorter ways into PostgreSQL: the claim, the plain insert, a place, and the insert that uses it up."""

from typing import Any

from django.db import migrations

from celery_guard.outbox.functions import create, drop

# The first claim stays for the processes that still run the code before this.
FUNCTIONS = ("claim_2", "insert_due_1", "insert_placed_1", "take_1")


def forwards(apps: Any, schema_editor: Any) -> None:
    """Make them."""
    create(schema_editor, FUNCTIONS)


def backwards(apps: Any, schema_editor: Any) -> None:
    """Remove them."""
    drop(schema_editor, FUNCTIONS)


class Migration(migrations.Migration):
    dependencies = [("celery_guard", "0005_worker_functions")]

    # MariaDB knows no transaction around this; PostgreSQL has the migration's own.
    operations = [migrations.RunPython(forwards, backwards, atomic=False)]
