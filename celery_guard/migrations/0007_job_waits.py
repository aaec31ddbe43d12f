"""One rule of a job for the database to check; the next migration takes all the others away."""

from typing import Any

from django.db import migrations
from django.db.models import BooleanField, CheckConstraint, ExpressionWrapper, Q
from django.db.models.lookups import Exact


def _truth(condition: Q) -> Any:
    return ExpressionWrapper(condition, output_field=BooleanField())


class AddWithoutStop(migrations.AddConstraint):
    """Added first and looked at then: to look at every row under the lock would stop the site.

    Each step stands alone, and may be repeated after one that failed.
    """

    def database_forwards(
        self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any
    ) -> None:
        """Add it to the table, and have PostgreSQL look at the rows that are there."""
        if schema_editor.connection.vendor != "postgresql":
            super().database_forwards(app_label, schema_editor, from_state, to_state)
            return
        job = to_state.apps.get_model(app_label, self.model_name)
        table = schema_editor.quote_name(job._meta.db_table)
        name = schema_editor.quote_name(self.constraint.name)
        schema_editor.execute(f"ALTER TABLE {table} DROP CONSTRAINT IF EXISTS {name}")
        added = self.constraint.create_sql(job, schema_editor)
        schema_editor.execute(f"{added} NOT VALID", params=None)
        schema_editor.execute(f"ALTER TABLE {table} VALIDATE CONSTRAINT {name}")


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("celery_guard", "0006_functions")]
    operations = [
        AddWithoutStop(
            "job",
            CheckConstraint(
                name="celery_guard_job_waits",
                condition=Exact(
                    _truth(Q(state="waiting")),
                    _truth(Q(due_at__isnull=False, owner__isnull=True)),
                ),
            ),
        )
    ]
