"""The example shop's site: settings, addresses, the Celery app.

The Celery app is imported here, as every Celery-on-Django project does, so that web processes
and workers both have it before a task module is loaded.
"""

from site_config.celery import app as celery_app

__all__ = ["celery_app"]
