"""Let a switch send new jobs to a lower lane."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """Changes the choices only, nothing in the database."""

    dependencies = [("celery_guard", "0016_functions")]

    operations = [
        migrations.AlterField(
            model_name="switch",
            name="action",
            field=models.CharField(
                choices=[
                    ("hold", "hold: jobs wait in the database, none starts"),
                    ("refuse", "refuse: new requests are turned away, owed work goes on"),
                    ("demote", "demote: new jobs go to the next lower lane, owed work stays"),
                ],
                default="hold",
                max_length=8,
            ),
        ),
    ]
