"""The test site's Celery app with this folder's tasks: `celery -A tests.run.site`."""

from tests.project.celery import app

app.conf.imports = (
    "tests.run.tasks",
    "tests.run.limited",
    "tests.flows.mailing",
    "tests.flows.canvas_tasks",
    "tests.flows.confiding",
    "tests.flows.tenanted",
    "tests.run.harmful",
    "tests.run.served",
)

__all__ = ["app"]
