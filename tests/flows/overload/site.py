"""The shop's Celery app: `celery -A tests.flows.overload.site`."""

from tests.project.celery import app

app.conf.imports = ("tests.flows.overload.shopfront",)

__all__ = ["app"]
