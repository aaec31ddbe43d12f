"""The index by which the release finds the jobs of a coalesce key; whole on MariaDB."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """Adds one partial index that no update of another job touches."""

    dependencies = [("celery_guard", "0003_insert")]

    operations = [
        migrations.AddIndex(
            model_name="job",
            index=models.Index(
                fields=["coalesce_key", "task", "finished_at"],
                name="celery_guard_job_coalesce",
                condition=models.Q(("coalesce_key__isnull", False)),
            ),
        ),
    ]
