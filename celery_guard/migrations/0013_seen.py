from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('celery_guard', '0012_replay'),
    ]

    operations = [
        migrations.CreateModel(
            name='Series',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=64)),
                ('labels', models.CharField(max_length=400)),
                ('value', models.BigIntegerField(default=0)),
            ],
            options={
                'verbose_name_plural': 'series',
                'constraints': [models.UniqueConstraint(fields=('name', 'labels'), name='celery_guard_series_row')],
            },
        ),
    ]
