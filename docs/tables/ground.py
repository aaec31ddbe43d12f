"""A Django without a site: enough to import models, commands and collectors."""

import django
from django.conf import settings


def set_up() -> None:
    """Configure Django where nobody has done so yet. No database is spoken to."""
    if settings.configured:
        return
    settings.configure(
        INSTALLED_APPS=["django.contrib.auth", "django.contrib.contenttypes", "celery_guard"],
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
        USE_TZ=True,
    )
    django.setup()
