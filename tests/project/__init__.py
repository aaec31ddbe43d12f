"""A small Django site with guarded tasks, run by the tests in real worker processes."""

from tests.project.celery import app as celery_app

__all__ = ["celery_app"]
