"""Give PostgreSQL the insert of a job as a function, which plans it once a session."""

from typing import Any

from django.db import migrations

from celery_guard.outbox.functions import FIRST, create, drop


def forwards(apps: Any, schema_editor: Any) -> None:
    create(schema_editor, FIRST)


def backwards(apps: Any, schema_editor: Any) -> None:
    drop(schema_editor, FIRST)


class Migration(migrations.Migration):
    dependencies = [("celery_guard", "0002_storage")]

    operations = [migrations.RunPython(forwards, backwards)]
