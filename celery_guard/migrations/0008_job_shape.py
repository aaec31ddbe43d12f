"""All the rules of a job at once: the database no longer checks them."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("celery_guard", "0007_job_waits")]
    operations = [migrations.RemoveConstraint("job", "celery_guard_job_shape")]
