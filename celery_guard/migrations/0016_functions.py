"""Give PostgreSQL the release as a function, and an insert of many that fills in their envelopes."""

from typing import Any

from django.db import migrations

from celery_guard.outbox.functions import THIRD, create, drop


def forwards(apps: Any, schema_editor: Any) -> None:
    create(schema_editor, THIRD)


def backwards(apps: Any, schema_editor: Any) -> None:
    drop(schema_editor, THIRD)


class Migration(migrations.Migration):
    dependencies = [("celery_guard", "0015_limit_change")]

    operations = [migrations.RunPython(forwards, backwards)]
