"""Its Celery app: `celery -A tests.flows.outage.site`."""

from tests.project.celery import app

app.conf.imports = ("tests.flows.outage.services",)

__all__ = ["app"]
