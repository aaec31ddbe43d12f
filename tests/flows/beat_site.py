"""The test site with a schedule; `celery -A tests.flows.beat_site beat` ticks twice a second."""

from tests.project.celery import app

app.conf.beat_schedule = {
    "twice": {"task": "tests.project.shop.tasks.add", "schedule": 0.5, "args": (1, 2)}
}
