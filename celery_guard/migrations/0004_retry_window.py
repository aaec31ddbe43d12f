from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('celery_guard', '0003_presence_version'),
    ]

    operations = [
        migrations.CreateModel(
            name='RetryWindow',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('resource', models.CharField(max_length=270)),
                ('slot', models.SmallIntegerField()),
                ('bucket', models.BigIntegerField()),
                ('starts', models.BigIntegerField(default=0)),
                ('retries', models.BigIntegerField(default=0)),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('resource', 'slot'), name='celery_guard_retrywindow_row')],
            },
        ),
    ]
