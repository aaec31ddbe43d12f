from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('celery_guard', '0017_demote'),
    ]

    operations = [
        migrations.AddField(
            model_name='lanesnapshot',
            name='busy_slots',
            field=models.FloatField(db_default=0, default=0),
        ),
    ]
