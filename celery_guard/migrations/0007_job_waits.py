"""One rule of a job that the database checks, instead of all of them."""

from typing import Any

from django.db import migrations
from django.db.models import BooleanField, CheckConstraint, ExpressionWrapper, Q
from django.db.models.lookups import Exact

_ENDED = ["succeeded", "failed", "dead", "cancelled", "expired", "superseded"]


def _truth(condition: Q) -> Any:
    return ExpressionWrapper(condition, output_field=BooleanField())


WAITS = CheckConstraint(
    name="celery_guard_job_waits",
    condition=Exact(
        _truth(Q(state="waiting")), _truth(Q(due_at__isnull=False, owner__isnull=True))
    ),
)
SHAPE = CheckConstraint(
    name="celery_guard_job_shape",
    condition=(
        Q(due_at__isnull=False, owner=None, state="waiting")
        | Q(
            due_at__isnull=False,
            owner__isnull=False,
            sent_at__isnull=False,
            state__in=["running", "reconciling"],
        )
        | Q(due_at=None, owner=None, sent_at=None, state__in=_ENDED)
    ),
)


def _exchange(schema_editor: Any, job: Any, old: CheckConstraint, new: CheckConstraint) -> None:
    if schema_editor.connection.vendor != "postgresql":
        schema_editor.add_constraint(job, new)
        schema_editor.remove_constraint(job, old)
        return
    # To look at every row while the table is locked would stop the site for that long. Each step
    # stands alone, and may be repeated after one that failed.
    table = schema_editor.quote_name(job._meta.db_table)
    name = schema_editor.quote_name(new.name)
    schema_editor.execute(f"ALTER TABLE {table} DROP CONSTRAINT IF EXISTS {name}")
    schema_editor.execute(f"{new.create_sql(job, schema_editor)} NOT VALID", params=None)
    schema_editor.execute(f"ALTER TABLE {table} VALIDATE CONSTRAINT {name}")
    before = schema_editor.quote_name(old.name)
    schema_editor.execute(f"ALTER TABLE {table} DROP CONSTRAINT IF EXISTS {before}")


def forwards(apps: Any, schema_editor: Any) -> None:
    """The one instead of the many."""
    _exchange(schema_editor, apps.get_model("celery_guard", "Job"), SHAPE, WAITS)


def backwards(apps: Any, schema_editor: Any) -> None:
    """The many instead of the one."""
    _exchange(schema_editor, apps.get_model("celery_guard", "Job"), WAITS, SHAPE)


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("celery_guard", "0006_functions")]
    operations = [
        migrations.SeparateDatabaseAndState(
            database_operations=[migrations.RunPython(forwards, backwards, atomic=False)],
            state_operations=[
                migrations.RemoveConstraint(model_name="job", name=SHAPE.name),
                migrations.AddConstraint(model_name="job", constraint=WAITS),
            ],
        )
    ]
